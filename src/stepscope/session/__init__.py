"""TOUCHING MACHINES: phases in a tested order, always cleaned up."""

"""Pairs of configurations that differ by one change, and what they say of causes."""

"""VERDICT -> PAGE."""

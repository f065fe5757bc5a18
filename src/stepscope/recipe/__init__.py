"""WHAT TO RUN: a TOML file becomes a frozen Recipe, a Recipe becomes a Plan."""

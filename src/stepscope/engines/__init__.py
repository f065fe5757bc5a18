"""WHAT EACH ENGINE IS: command, readiness, flags that matter, metric names."""

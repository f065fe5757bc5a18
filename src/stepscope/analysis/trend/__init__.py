"""Many runs of one configuration over time."""

"""Is the difference real? Configurations against one another, within what noise allows.

Means on logs, the launch as the unit where launches repeat, Student's t, Dunnett over
configurations, Holm over rows, an anchor between sessions. docs/compare.md has the
formulas, what they assume and how often they were wrong in simulation.
"""

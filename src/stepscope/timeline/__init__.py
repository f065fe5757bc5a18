"""TRACE -> STEP BUDGET: loader, quality gate, steps, gaps, rank waits.

Everything inside is integer nanoseconds in numpy columns; milliseconds appear only in
the records that leave the room.
"""

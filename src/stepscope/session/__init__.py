"""Touching machines: boot, watch, drive and always stop. It measures, never explains.

The order of phases is ``tests/session/test_phases.py``. Every process that is started
here is the descendant of a guard (``stepscope.session.guard``), which outlives this
program long enough to stop it.
"""

"""WHAT MUST BE MOVED: shapes, bytes per step, KV accounting, hardware, cost."""

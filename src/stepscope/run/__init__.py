"""THE SEAM: what a run is, once it lies on disk or in memory.

Left of here machines are touched; right of here they are explained. All instants of
one run (``*_at_ns``) lie on one timeline, named by ``Run.timeline``.
"""

"""PHASES of one launch: preflight, boot, probe, warm-up and measure, stop."""

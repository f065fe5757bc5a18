"""One cell: its window, identities, latencies, server side and telemetry."""

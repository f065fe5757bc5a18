"""Several cells read together: repeats, anomalies, step models, comparisons."""

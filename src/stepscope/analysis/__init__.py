"""RUN -> FINDINGS: windows, metrics, identities, step model. Takes a Run, no path."""

"""FINDINGS -> VERDICT: hypotheses with evidence; what is solid and what is not."""

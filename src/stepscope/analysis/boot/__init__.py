"""Why a server came up, or did not: from a parsed log to a verdict.

``root`` finds the first failure, ``causes`` names what it means, ``room`` does the
arithmetic of the ledger, ``fixes`` turns that into flags with values, and
``diagnose`` puts them together. ``explain`` is for logs of servers that run.
"""

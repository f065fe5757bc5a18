"""stepscope: where an LLM server spends its decode step, and how we know."""

__version__ = "0.1.0"

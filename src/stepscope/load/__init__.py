"""THE CLIENT: prompts, wire, stamps, workers."""

"""Prompts from files: what each form says, line by line, and which are chosen."""

"""What to measure next: what each measurement would settle, and what it costs."""

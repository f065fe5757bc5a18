"""What a source says of its own measurement, held against the evidence."""

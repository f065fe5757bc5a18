"""One module for each candidate cause, or for causes that one measurement decides."""

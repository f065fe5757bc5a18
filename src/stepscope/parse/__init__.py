"""BYTES -> RECORDS: no I/O, no clock."""

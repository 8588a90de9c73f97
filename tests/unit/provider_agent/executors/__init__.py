"""What executors make of a program, without an engine."""

"""Data skipping: statistics, predicates and file selection."""

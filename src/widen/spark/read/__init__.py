"""A snapshot as a DataFrame."""

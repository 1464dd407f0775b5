"""Parquet footers: statistics, physical types and old type files."""

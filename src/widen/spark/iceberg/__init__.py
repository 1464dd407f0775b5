"""A snapshot of an Iceberg table as a DataFrame."""

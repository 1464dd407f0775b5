"""Table formats: what an ingestion asks of a table, one module for each format."""

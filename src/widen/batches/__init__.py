"""One batch of an ingestion: its records are observed, converted and written as files."""

"""One batch of an ingestion, from texts or typed records, and streams of batches."""

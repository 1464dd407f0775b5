"""Streams: a query that ingests its source in micro-batches, and its checkpoint."""

"""Schema evolution at ingestion: which columns a batch needs."""

"""The proof that an ingestion lost nothing, run over the files of its source and of the table."""

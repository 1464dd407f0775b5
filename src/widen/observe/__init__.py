"""Parse records and observe which kinds of values a batch has."""

"""JSON records: parsing, splitting, and which kinds of values a batch has."""

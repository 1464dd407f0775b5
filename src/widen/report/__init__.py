"""Reports of a table for the terminal, as JSON and as HTML."""

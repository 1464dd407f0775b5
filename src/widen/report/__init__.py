"""Reports for people: terminal, JSON and HTML."""

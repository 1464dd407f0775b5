"""From records to rows: which columns each value goes to, and how it is converted."""

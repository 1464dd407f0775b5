"""The proof that no value is lost. It shares no code with what makes the rows: own parser, own rules, own routes."""

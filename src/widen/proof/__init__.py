"""The proof that no value is lost: its own parser, rules and routes share no code with those that make the rows."""

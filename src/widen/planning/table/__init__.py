"""The state of a table and the operations that change it."""

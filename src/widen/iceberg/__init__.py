"""The only package that imports pyiceberg."""

"""The specification of Delta tables as code, a module for each chapter; rules are tables."""

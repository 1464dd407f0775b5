"""Widen as a data source of Spark."""

"""Ingestion: an interval from its source to one commit, and one interval after the other.

Source: docs/evolution-rules.md#one-interval
"""

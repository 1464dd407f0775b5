"""Rewriting old files and profiling columns."""

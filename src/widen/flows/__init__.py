"""Flows: what changes in one table is carried on to another, range of versions by range of versions.

Source: docs/guide/flow.md
"""

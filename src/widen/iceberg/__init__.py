"""Iceberg metadata through PyIceberg, without Spark: catalogs, types, properties and commits.

PyIceberg is optional. Its modules are imported on first use, so that the package works without it.
"""

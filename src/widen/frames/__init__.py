"""Tables as DataFrames of Spark: scans, projections, writes and checks."""

"""Tables as Spark DataFrames: scans, projections, writes and checks."""

"""The DataFrames of a flow: its query and its keys."""

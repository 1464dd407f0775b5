"""Access to the files of a table, on a local disk or in an object store."""

"""UPDATE, DELETE, MERGE, overwrites and the change data feed."""

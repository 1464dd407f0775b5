"""JSON texts to rows, on the executors."""

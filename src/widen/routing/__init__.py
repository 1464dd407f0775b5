"""From records to rows: which columns each value goes to, how it gets there, and the proof that it arrived."""

"""The fast path: records decoded natively into columns."""

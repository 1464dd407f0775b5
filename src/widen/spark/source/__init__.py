"""Source files and the texts in them."""

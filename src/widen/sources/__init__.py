"""Source files: their places, their formats, and the records in them."""

"""The only package that imports pyspark."""

import warnings

# PySpark warns at every job with Arrow batches about a pandas that is newer than it; we pass it no pandas data.
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)

"""The lake: Parquet below one URI, in ranges of offsets, of which only those count that a manifest has committed."""

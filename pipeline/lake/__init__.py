"""The lake: Parquet below one URI, in ranges of offsets. Only ranges that a manifest has committed count."""

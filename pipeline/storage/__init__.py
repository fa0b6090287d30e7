"""The columns of the tables, places, and the Parquet files that Spark's tasks write: all that the lake and its users share."""

"""The lake: Delta tables below one URI, in ranges of offsets. Only files that a commit names count."""

"""Report on the gold tables: one static page, and the same numbers as text and JSON. Without Spark."""

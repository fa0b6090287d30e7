"""What the gold tables say, for looking at: one static page, and the same numbers as text and JSON. Without Spark."""

"""Kafka's metadata logs: framing, record tables, decoders. No Spark, no JVM."""

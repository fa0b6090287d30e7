"""Kafka's record batches: format, checks, compression. A producer, a broker's log and every reader of a log share them."""

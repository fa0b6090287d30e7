"""The broker's storage: record batches, segment files, partition logs, log directories. Synchronous; thread-safe per log."""

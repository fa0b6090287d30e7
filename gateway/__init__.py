"""The Kafka wire protocol for existing clients: a thin door to the operations that gRPC calls."""

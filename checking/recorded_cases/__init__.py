"""Runs recordings of what Apache Kafka answered against a cluster of ours. `docs/recorded-cases.md` is the guide."""

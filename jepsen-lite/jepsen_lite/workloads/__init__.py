"""The workloads, by name."""

"""Worlds, in which workloads run: simulated nodes, the real runtime on a mock clock, or real processes."""

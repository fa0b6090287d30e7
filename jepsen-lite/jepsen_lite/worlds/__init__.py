"""Where a workload runs: simulated nodes, the real shell on a mock clock, or real processes."""

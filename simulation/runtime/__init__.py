"""The simulated runtime: real controllers and brokers on a mock clock, with a network in memory and disks that can lose power."""

"""The runtime simulated: real controllers and brokers on a mock clock, with a network in memory and disks that may lose power."""

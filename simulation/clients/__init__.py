"""Clients simulated: a cluster that clients call while faults strike, in virtual time, and a seed is a run."""

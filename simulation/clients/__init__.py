"""Simulated clients: they call a cluster in virtual time while faults strike. A seed is a run."""

"""Checkers: each is a pure function of a run and independent of the world that made the run."""

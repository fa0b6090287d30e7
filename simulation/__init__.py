"""Deterministic worlds: one seed plays the same run again, to the last byte."""

"""Deterministic worlds: a seed always plays the same run, to the last byte."""

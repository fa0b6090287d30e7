"""Measurements: `python -m bench` runs all, `python -m bench commit` one; docs/benchmarks.md says what each means."""

"""Measurements: `python -m bench` runs all, `python -m bench commit` one. Each prints a table, or JSON with `--json`."""

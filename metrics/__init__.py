"""Metrics of a node: their catalogue, the text for Prometheus, and the METRICS listener."""

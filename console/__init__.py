"""The web console: a live page of a cluster."""

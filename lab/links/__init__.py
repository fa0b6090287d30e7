"""Proxies on the links between a local cluster's nodes: what one sends to another can be held, delayed, lost, doubled."""

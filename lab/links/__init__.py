"""Proxies on the links between a local cluster's nodes: messages from one node to another can be held, delayed, lost,
doubled.
"""

"""Faults on a running cluster by name: the orders, the breaker that carries them out, and the socket that takes them from a
command line.
"""

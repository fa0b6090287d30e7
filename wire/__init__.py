"""Peer frames between nodes: framing, requests with answers over one connection, and the network beneath them.

Frames carry Raft, registration, heartbeats, replica fetches and forwarded admin calls.
"""

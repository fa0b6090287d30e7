"""Certificates: an authority of one's own, and the key and trust material of a node's listeners."""

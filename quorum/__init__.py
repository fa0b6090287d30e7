"""Consensus: a replicated log of opaque records (KIP-595, KIP-630, KIP-853). Knows no topic and no broker."""

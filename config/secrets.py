"""Which configs hold secrets: those of type PASSWORD, and whatever nobody knows, since it may be a misspelt one (KIP-226)."""

from __future__ import annotations

from .topic_configs import known_key


def is_secret(resource_type: int, name: str) -> bool:
    """Whether the value of that config of a resource (type as in the protocol) must not be shown."""
    key = known_key(resource_type, name)
    return key is None or key.is_sensitive

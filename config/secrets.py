"""Secret configs: those of type PASSWORD, and unknown ones, which may be misspelt (KIP-226)."""

from __future__ import annotations

from .topic_configs import known_key


def is_secret(resource_type: int, name: str) -> bool:
    """Return True if the value of that config must not be shown. `resource_type` is the protocol's number."""
    key = known_key(resource_type, name)
    return key is None or key.is_sensitive

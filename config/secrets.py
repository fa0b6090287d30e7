"""Which configs hold secrets: those of type PASSWORD, and whatever nobody knows, since it may be a misspelt one (KIP-226)."""

from __future__ import annotations

from .config_key import ConfigKey
from .resources import ResourceType
from .topic_configs import CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, broker_key


def is_secret(resource_type: int, name: str) -> bool:
    """Whether the value of that config of a resource (type as in the protocol) must not be shown."""
    key: ConfigKey | None = None
    if resource_type == ResourceType.TOPIC:
        key = TOPIC_KEYS.get(name)
    elif resource_type == ResourceType.BROKER:
        key = broker_key(name)
    elif resource_type == ResourceType.CLIENT_METRICS:
        key = CLIENT_METRICS_KEYS.get(name)
    elif resource_type == ResourceType.GROUP:
        key = GROUP_KEYS.get(name)
    return key is None or key.is_sensitive

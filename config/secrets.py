"""Secret configs: those of type PASSWORD, and unknown ones, which may be misspelt (KIP-226).

This is the one place that decides which values are never shown: not by commands, answers, errors, logs or tables.
"""

from __future__ import annotations

import re

from .resources import ResourceType
from .topic_configs import known_key

HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(r"password|secret|jaas|credential|token|\.key$|\.users$|keystore\.key|truststore\.certificates")


def is_secret(resource_type: int, name: str) -> bool:
    """Return True if the value of that config must not be shown. `resource_type` is the protocol's number."""
    key = known_key(resource_type, name)
    return key is None or key.is_sensitive


def is_secret_property(name: str) -> bool:
    """Return True if that value of server.properties must not be shown."""
    return is_secret(ResourceType.BROKER, name)


def shown(name: str, value: str | None) -> str:
    """Text of a value of server.properties for people. None is a key without a line."""
    if value is None:
        return "unset"
    return HIDDEN if is_secret_property(name) else value or "empty"


def looks_secret(name: str) -> bool:
    """Return True if the value of a config of any program, also one of another release of Kafka, must not be shown."""
    key = known_key(ResourceType.BROKER, name)
    return key.is_sensitive if key is not None else _SECRET_NAME.search(name.lower()) is not None

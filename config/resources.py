"""Kafka's numbers for types of resources with configs, and for changes of a config."""

from __future__ import annotations

import enum


class ResourceType(enum.IntEnum):
    """Types of resources that have configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(enum.IntEnum):
    """Changes of one config (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3

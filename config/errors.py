"""The error of this room."""

from __future__ import annotations


class ConfigError(ValueError):
    """A node must not start with this configuration or data directory. The text names the fault, the value and the next step."""

"""The one error of this room."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration, or a data directory, that a node must not start with. The text says what is wrong, with the value, and
    what to do."""

"""How a fault that is meant can fail itself."""

from __future__ import annotations


class CannotStrike(Exception):
    """A fault cannot be done here and now; the text says why. The run goes on."""


class CannotUndo(Exception):
    """A fault was not undone; the text says why."""

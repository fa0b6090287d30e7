"""Overlays of persistent maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import immutables

K = TypeVar("K")
V = TypeVar("V")


def written(base: immutables.Map[K, V], overlay: Mapping[K, V | None]) -> immutables.Map[K, V]:
    """Write an overlay into `base`: set its values, and remove the keys with None."""
    if not overlay:
        return base
    mutation = base.mutate()
    for key, value in overlay.items():
        if value is not None:
            mutation[key] = value
        else:
            mutation.pop(key, None)
    return mutation.finish()


def newest(base: immutables.Map[K, V], overlay: Mapping[K, V | None], key: K) -> V | None:
    """Return the value that a key has once the overlay is written into `base`."""
    return overlay[key] if key in overlay else base.get(key)

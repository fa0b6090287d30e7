"""Feature levels: which record formats and behaviours a cluster has agreed on (KIP-584).

A level is finalized by a FeatureLevel record. A node that replays a level outside its own range must stop rather than misread
what follows. `metadata.version` gates fields that were added to records; a fresh cluster is finalized at the newest level.
"""

from __future__ import annotations

from .records import AnyRecord, FeatureLevel

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30
"""The level that a fresh cluster finalizes: that of Kafka 4.3, whose behaviour is the reference."""
METADATA_VERSION_NAME = "4.3-IV0"
"""What people call that level."""

SUPPORTED: dict[str, tuple[int, int]] = {METADATA_VERSION: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL)}
"""Feature → lowest and highest level that this software works at."""


def supported_features() -> tuple[tuple[str, int, int], ...]:
    """What a node announces at registration: (name, lowest, highest), sorted."""
    return tuple((name, lowest, highest) for name, (lowest, highest) in sorted(SUPPORTED.items()))


def is_supported(name: str, level: int) -> bool:
    """Whether this software works at that level; level 0 removes a feature and is always fine."""
    lowest, highest = SUPPORTED.get(name, (0, 0))
    return level == 0 or lowest <= level <= highest


def bootstrap_records() -> list[AnyRecord]:
    """What the first active controller of a cluster writes before anything else."""
    return [FeatureLevel(0, METADATA_VERSION, METADATA_VERSION_LEVEL)]

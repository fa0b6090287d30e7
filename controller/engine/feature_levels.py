"""metadata.version from which on the controller writes a kind of record. The names are Kafka's releases."""

from __future__ import annotations

from kraftlab.metadata.features import METADATA_VERSION
from kraftlab.metadata.image import MetadataImage

LOWEST_LEVEL = 1
"""Level of a log without a metadata.version (3.0-IV1)."""
NO_EPOCH_FOR_SHRINKS = 12
"""A leader keeps its epoch when its in-sync set shrinks (3.6-IV0)."""
TRANSACTIONS = 13
"""Metadata transactions (3.6-IV1)."""
CONTROLLER_REGISTRATION = 15
"""Controllers announce their endpoints and features (3.7-IV0)."""
DIRECTORIES = 17
"""Log directories of brokers and of replicas (3.7-IV2)."""
CORDONED_DIRECTORIES = 30
"""Cordoned log directories (4.3-IV0)."""


def metadata_version(image: MetadataImage) -> int:
    """The finalized level."""
    return image.features.get(METADATA_VERSION, LOWEST_LEVEL)


def shrink_raises_epoch(image: MetadataImage) -> bool:
    """Return True if a shrinking in-sync set gives the leader a new epoch."""
    return metadata_version(image) < NO_EPOCH_FOR_SHRINKS

"""What a new active controller writes before anything else (KIP-866, KIP-868).

An empty log gets the bootstrap records of a new cluster, in one batch. A transaction that a predecessor left open is aborted:
nobody has seen any of it. A log with records but without a metadata.version is one of the oldest version there is, and is left
alone. Which of this applies is told by the image alone, so every controller that could lead decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.records import AbortTransaction, AnyRecord

from .feature_levels import TRANSACTIONS, metadata_version


class ActivationRefused(Exception):
    """The log cannot be led from here: it says two things that do not go together."""


def is_empty(image: MetadataImage) -> bool:
    """Whether the log has said nothing yet; what an open transaction holds back does not count."""
    return msgspec.structs.replace(image, provenance=EMPTY.provenance, transaction=None) == EMPTY


def activation_records(image: MetadataImage, first: Sequence[AnyRecord] | None = None) -> list[AnyRecord]:
    """The records, for one atomic batch. `first`: what a new cluster begins with, None for the newest of everything.

    ActivationRefused if a transaction is open that could not have been begun.
    """
    records: list[AnyRecord] = []
    new_cluster = is_empty(image)
    if image.transaction is not None:
        level = metadata_version(image)
        if not new_cluster and level < TRANSACTIONS:
            raise ActivationRefused(
                f"the log has a transaction open since offset {image.transaction.begin_offset}, but metadata.version {level} has "
                f"none (it takes {TRANSACTIONS}); compare this log with another controller's, and refill it if they differ"
            )
        records.append(AbortTransaction(0, "Controller failover"))
    if new_cluster:
        records += bootstrap_records() if first is None else first
    return records

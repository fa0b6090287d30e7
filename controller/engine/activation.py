"""First records of a new active controller (KIP-866, KIP-868).

An empty log gets the bootstrap records of a new cluster, in one batch. A transaction that a predecessor left open is aborted;
no reader has seen its records. A log with records but without a metadata.version has the oldest version, and is left as it is.
The image alone decides between these cases, so every controller decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.records import AbortTransaction, AnyRecord

from .feature_levels import TRANSACTIONS, metadata_version


class ActivationRefused(Exception):
    """This controller must not lead: the log contradicts itself."""


def is_empty(image: MetadataImage) -> bool:
    """Return True if the log has no content. Records of an open transaction do not count."""
    return msgspec.structs.replace(image, provenance=EMPTY.provenance, transaction=None) == EMPTY


def activation_records(image: MetadataImage, first: Sequence[AnyRecord] | None = None) -> list[AnyRecord]:
    """Records of one atomic batch. `first`: the records of a new cluster, None for the newest feature levels.

    ActivationRefused if a transaction is open that this metadata.version does not have.
    """
    records: list[AnyRecord] = []
    new_cluster = is_empty(image)
    if image.transaction is not None:
        level = metadata_version(image)
        if not new_cluster and level < TRANSACTIONS:
            raise ActivationRefused(
                f"the log has a transaction open since offset {image.transaction.begin_offset}, but metadata.version {level} has "
                f"no transactions ({TRANSACTIONS} is needed); compare this log with another controller's, and refill it if they "
                "differ"
            )
        records.append(AbortTransaction(0, "Controller failover"))
    if new_cluster:
        records += bootstrap_records() if first is None else first
    return records

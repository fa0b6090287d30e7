"""Producer ids are given out in blocks and never twice: the image is the first id that nobody has (KIP-98, KIP-730)."""

from __future__ import annotations

from collections.abc import Iterator

from .records import ProducerIds
from .replay_error import ReplayError

NO_BROKER = -1


def next_after(next_producer_id: int, record: ProducerIds) -> int:
    """The first free id after `record`. ReplayError if an id would be given twice."""
    if record.next_producer_id <= next_producer_id:
        raise ReplayError(f"producer ids below {next_producer_id} have been given out already")
    return record.next_producer_id


def producer_id_records(next_producer_id: int) -> Iterator[ProducerIds]:
    """What a snapshot says: nothing if no id was ever given."""
    if next_producer_id:
        yield ProducerIds(0, NO_BROKER, NO_BROKER, next_producer_id)

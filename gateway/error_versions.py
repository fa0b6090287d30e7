"""Error codes by the version of a request. A leader answers every caller alike; an old client does not know the newer codes.

A topic may be deleted after a request has found it, for example while its Fetch waits for records. The leader then knows no topic
with that id. A client that named the topic by its name has never heard of ids: the code would be fatal to it, where the one for
names lets it look again. The same holds for a disk that fails under a client from before KIP-112.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftlab.common.errors import ErrorCode

from .codec import Header

PRODUCE, FETCH, LIST_OFFSETS, EPOCH_ENDS = 0, 1, 2, 23
"""API keys."""
EVERY = 1 << 15
"""Above every version: the request names topics by name only."""


class _Newer(NamedTuple):
    """A code that versions of a request below `since` do not know, and the one that they get instead."""

    api: int
    since: int
    code: ErrorCode
    instead: ErrorCode


TABLE = (
    _Newer(PRODUCE, 13, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(PRODUCE, 13, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(PRODUCE, 4, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    _Newer(FETCH, 13, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(FETCH, 13, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(FETCH, 6, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    _Newer(LIST_OFFSETS, EVERY, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(LIST_OFFSETS, EVERY, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(EPOCH_ENDS, EVERY, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    _Newer(EPOCH_ENDS, EVERY, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
)
_ROWS: dict[tuple[int, int], _Newer] = {(row.api, row.code): row for row in TABLE}


def known_code(head: Header, code: int) -> int:
    """Return the code of a leader's answer as the version of the request knows it."""
    row = _ROWS.get((head.key, code)) if code else None
    return row.instead if row is not None and head.version < row.since else code

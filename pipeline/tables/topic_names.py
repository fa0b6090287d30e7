"""Ids as text in bulk, and the names of topics by their ids.

A log can name hundreds of thousands of topics, and every task gets all of them: they travel and are looked up as columns. A dict
is made only for records that are read one by one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UUID_BYTES, TEXT_BYTES = 16, 22


def _pairs() -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Return the two characters for each 12 bits."""
    both = b"".join(base64.urlsafe_b64encode((number << 12).to_bytes(3, "big"))[:2] for number in range(1 << 12))
    return np.frombuffer(both, np.uint16)


_PAIRS = _pairs()


def uuid_texts(uuids: np.ndarray[Any, Any]) -> pa.StringArray:
    """Return rows of 16 bytes as URL-safe base64 without padding."""
    count = len(uuids)
    wide = uuids.astype(np.uint16)
    threes = wide[:, :15].reshape(count, 5, 3)
    pairs = np.empty((count, 11), np.uint16)
    pairs[:, 0:10:2] = _PAIRS[threes[:, :, 0] << 4 | threes[:, :, 1] >> 4]
    pairs[:, 1:10:2] = _PAIRS[(threes[:, :, 1] & 15) << 8 | threes[:, :, 2]]
    pairs[:, 10] = _PAIRS[wide[:, 15] << 4]
    offsets = np.arange(count + 1, dtype=np.int32) * TEXT_BYTES
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(pairs))


class TopicNames(Mapping[str, str]):
    """Names by id."""

    def __init__(self, ids: pa.Array, names: pa.Array) -> None:
        self.ids, self.names = ids, names

    @classmethod
    def of(cls, names: Mapping[str, str]) -> TopicNames:
        if isinstance(names, TopicNames):
            return names
        return cls(pa.array(names.keys(), pa.string()), pa.array(names.values(), pa.string()))

    def of_ids(self, ids: pa.Array) -> pa.Array:
        """Return the name of each id, null for an unknown id."""
        return self.names.take(self._places(ids))

    def missing(self, ids: pa.Array, names: pa.Array) -> dict[str, str]:
        """Return the other names with unknown ids."""
        is_new = self._places(ids).is_null()
        return dict(zip(ids.filter(is_new).to_pylist(), names.filter(is_new).to_pylist(), strict=True))

    def _places(self, ids: pa.Array) -> pa.Array:
        """Return the place of each id, null for an unknown id."""
        return pc.index_in(ids, value_set=self.ids)

    @cached_property
    def _by_id(self) -> dict[str, str]:
        return dict(zip(self.ids.to_pylist(), self.names.to_pylist(), strict=True))

    def __reduce__(self) -> tuple[type[TopicNames], tuple[pa.Array, pa.Array]]:
        return TopicNames, (self.ids, self.names)

    def __getitem__(self, topic_id: str) -> str:
        return self._by_id[topic_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self.ids)

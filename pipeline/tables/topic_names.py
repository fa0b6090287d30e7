"""Ids as text in bulk, and the names of topics by their ids.

A log may name hundreds of thousands of topics, and every task is told all of them: they travel and are looked up as columns. Only
where records are read one by one is there a dict of them.
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
    """12 bits → the two characters that stand for them."""
    both = b"".join(base64.urlsafe_b64encode((number << 12).to_bytes(3, "big"))[:2] for number in range(1 << 12))
    return np.frombuffer(both, np.uint16)


_PAIRS = _pairs()


def uuid_texts(uuids: np.ndarray[Any, Any]) -> pa.StringArray:
    """Rows of 16 bytes as URL-safe base64 without padding."""
    count = len(uuids)
    wide = uuids.astype(np.uint16)
    threes = wide[:, :15].reshape(count, 5, 3)
    pairs = np.empty((count, 11), np.uint16)
    pairs[:, 0:10:2] = _PAIRS[threes[:, :, 0] << 4 | threes[:, :, 1] >> 4]
    pairs[:, 1:10:2] = _PAIRS[(threes[:, :, 1] & 15) << 8 | threes[:, :, 2]]
    pairs[:, 10] = _PAIRS[wide[:, 15] << 4]
    offsets = np.arange(count + 1, dtype=np.int32) * TEXT_BYTES
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(pairs))


Words = tuple[np.ndarray[Any, np.dtype[np.uint64]], ...]
Places = np.ndarray[Any, np.dtype[np.int64]]


def _words(ids: pa.StringArray) -> Words | None:
    """Texts of 22 bytes as three numbers each, of their bytes from 0, 8 and 14 on; None if there are any others."""
    ends = np.frombuffer(ids.buffers()[1], np.int32)[ids.offset : ids.offset + len(ids) + 1]
    if not len(ids) or (np.diff(ends) != TEXT_BYTES).any():
        return None
    texts = np.frombuffer(ids.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(-1, TEXT_BYTES)
    first, second, third = (np.ascontiguousarray(texts[:, at : at + 8]).view(np.uint64)[:, 0] for at in (0, 8, 14))
    return first, second, third


_FACTORS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)))


class _Slots:
    """Ids by a hash, made once and asked for many at a time: Arrow would make its own for each question."""

    def __init__(self, words: Words) -> None:
        self._words = words
        count = len(words[0])
        self._bits = max(4, (count * 4).bit_length())
        self._slots = np.full(1 << self._bits, -1, np.int64)
        slots, left = self._first(words), np.arange(count)
        while len(left):
            free = left[self._slots[slots[left]] < 0]
            self._slots[slots[free]] = free
            left = left[self._slots[slots[left]] != left]
            slots[left] = self._next(slots[left])

    def places(self, words: Words) -> Places:
        """The place of each, -1 if there is none."""
        slots = self._first(words)
        found = self._slots[slots]
        left = np.flatnonzero(found >= 0)
        while len(left):
            differs = np.zeros(len(left), bool)
            for mine, asked in zip(self._words, words, strict=True):
                differs |= mine[found[left]] != asked[left]
            left = left[differs]
            slots[left] = self._next(slots[left])
            found[left] = self._slots[slots[left]]
            left = left[found[left] >= 0]
        return found

    def _first(self, words: Words) -> Places:
        mixed = words[0] * _FACTORS[0] ^ words[1] * _FACTORS[1] ^ words[2] * _FACTORS[2]
        slots: Places = (mixed >> np.uint64(64 - self._bits)).astype(np.int64)
        return slots

    def _next(self, slots: Places) -> Places:
        following: Places = (slots + 1) & ((1 << self._bits) - 1)
        return following


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
        """The name of each, null if it is not known."""
        return self.names.take(self._places(ids))

    def missing(self, ids: pa.Array, names: pa.Array) -> dict[str, str]:
        """Those of other names whose ids are not among these."""
        is_new = self._places(ids).is_null()
        return dict(zip(ids.filter(is_new).to_pylist(), names.filter(is_new).to_pylist(), strict=True))

    def _places(self, ids: pa.Array) -> pa.Array:
        """Where each id stands among these, null if it does not."""
        words = _words(ids)
        if words is None or self._slots is None:
            return pc.index_in(ids, value_set=self.ids)
        places = self._slots.places(words)
        return pa.array(places, mask=places < 0)

    @cached_property
    def _slots(self) -> _Slots | None:
        words = _words(self.ids)
        return None if words is None else _Slots(words)

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

"""A metadata log as JSON: one line per batch, in the shape of Kafka's own decoder, and its faults as lines for people.

A damage is a line in the place of the batches that it destroyed, with `position`, `size`, `status` and `error`. A record that
cannot be decoded is listed among its batch's records with `error` and with its bytes as base64 in `raw`. Secrets are hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from .batches import Batch, Damage
from .files import is_checkpoint
from .reader import read_file
from .secret_values import hide_record


class Line(NamedTuple):
    """One line of JSON. `end_position` is the start of the next one in the file. `notes` are harmless, `faults` are not."""

    json: bytes
    end_position: int
    records: int
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def dump_file(path: Path, *, name_file: bool = False) -> Iterator[Line]:
    """Yield a file's lines in order. With `name_file`, each begins with the key `file`. OSError."""
    encoder = msgspec.json.Encoder()
    prefix = b'{"file":' + encoder.encode(str(path)) + b"," if name_file else b"{"
    for entry in map(_shown, read_file(path)):
        json = prefix + encoder.encode(entry)[1:]
        end = entry.position + entry.size_bytes
        if isinstance(entry, Batch):
            yield Line(json, end, len(entry.records), tuple(_undecoded(path, entry)), ())
        elif entry.status == "torn" and not is_checkpoint(path):
            yield Line(json, end, 0, (), (_text(path, entry),))
        else:
            yield Line(json, end, 0, (_text(path, entry),), ())


def _shown(entry: Batch | Damage) -> Batch | Damage:
    if isinstance(entry, Damage):
        return entry
    return msgspec.structs.replace(entry, records=[hide_record(record) for record in entry.records])


def _undecoded(path: Path, batch: Batch) -> Iterator[str]:
    for record in batch.undecoded():
        yield f"{path}: batch at position {batch.position}, offset {record.offset}: {record.error}"


def _text(path: Path, damage: Damage) -> str:
    return f"{path}: position {damage.position}: {damage.status}: {damage.error}"

"""Texts of `metadata at` and `metadata diff`: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from kraftlab.metadata.difference import change_lines, whole_changes
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.record_text import IsSecret, record_document
from kraftlab.metadata.tree import Directory, Node, plain_document

from ..tables import utc_text

if TYPE_CHECKING:
    from kraftlab.node.history import LoggedBatch

NAMES_SHOWN = 20
"""Number of existing names in the error for a missing name."""


def place_text(at: Provenance) -> str:
    """Return a place as `offset 120, epoch 3, appended 2026-11-21T17:06:35.222Z`."""
    if at.offset == 0:
        return "offset 0, before anything was appended"
    appended = f", appended {utc_text(at.append_time_ms)}" if at.append_time_ms else ""
    return f"offset {at.offset}, epoch {at.epoch}{appended}"


def place_document(at: Provenance) -> dict[str, object]:
    return {"offset": at.offset, "epoch": at.epoch, "append_time_ms": at.append_time_ms}


def certainty(offset: int, known_committed: int | None) -> bool | None:
    """Return True if every record below the offset is committed, None if that is unknown."""
    return True if known_committed is None or offset <= known_committed else None


def warnings(image: MetadataImage, stopped: str | None, notes: Sequence[str], known_committed: int | None) -> Iterator[str]:
    """Yield the caveats of a past image for its reader."""
    yield from (f"NOT READABLE  {note}" for note in notes)
    if stopped is not None:
        yield f"NOT READABLE  {stopped}"
    if certainty(image.provenance.offset, known_committed) is None:
        yield f"NOT CERTAIN   this directory does not show that offsets from {known_committed} on are committed"
    if image.transaction is not None:
        yield f"NOT VISIBLE   the transaction begun at offset {image.transaction.begin_offset} is open: its records do not count"


def boundary_line(asked: int, at: Provenance, newest: Provenance) -> str:
    """Explain why an image is of an earlier offset than the one that was asked for."""
    if at.offset == newest.offset:
        return f"EARLIER       the log ends at offset {at.offset}, before offset {asked}"
    return (
        f"EARLIER       offset {asked} is inside the batch that begins at {at.offset}; a batch counts whole or not at all, "
        "so this is the image before it"
    )


def subtree(tree: Directory, path: str) -> Node:
    """Return the node at a path, with or without `/image` in front. KeyError names the missing part and the existing names."""
    node: Node = tree
    parts = [part for part in path.removeprefix("/image").split("/") if part]
    for depth, name in enumerate(parts):
        if not isinstance(node, Directory) or name not in node:
            there = node.names() if isinstance(node, Directory) else []
            shown = ", ".join([*there[:NAMES_SHOWN], *["…"][: len(there) > NAMES_SHOWN]]) or "nothing"
            raise KeyError(
                f"there is no {'/'.join(parts[: depth + 1])}; in {'/'.join(parts[:depth]) or '/image'} there is {shown}"
            )
        node = node.get(name)
    return node


def node_lines(path: str, node: Node) -> Iterator[str]:
    """Yield one line for each object in a part of an image: `topics/byName/orders/0  replicas=[1,2] leader=1`."""
    if not isinstance(node, Directory):
        yield f"{path}  {msgspec.json.encode(plain_document(node)).decode()}"
        return
    prefix = tuple(part for part in path.split("/") if part)
    for line in change_lines(change for change in whole_changes(prefix, node, "added") if change.fields):
        yield line[2:]


def batch_lines(batches: Iterable[LoggedBatch], is_secret: IsSecret) -> Iterator[str]:
    """Yield one line for each record of batches."""
    for found in batches:
        head = f"epoch {found.epoch} {utc_text(found.append_time_ms)}"
        if not found.records:
            yield f"offset {found.base_offset} {head} control batch of {found.record_count}"
        for offset, record in enumerate(found.records, found.base_offset):
            shown = record_document(record, is_secret)
            yield f"offset {offset} {head} {shown['type']} {msgspec.json.encode(shown['data']).decode()}"


def batch_documents(batches: Iterable[LoggedBatch], is_secret: IsSecret) -> list[dict[str, object]]:
    return [
        {
            "base_offset": found.base_offset,
            "epoch": found.epoch,
            "append_time_ms": found.append_time_ms,
            "record_count": found.record_count,
            "records": [
                {"offset": offset, **record_document(record, is_secret)}
                for offset, record in enumerate(found.records, found.base_offset)
            ],
        }
        for found in batches
    ]

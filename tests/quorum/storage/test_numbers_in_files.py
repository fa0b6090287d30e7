"""Every number in the files of the metadata log replaced by its ends, alone and with the CRC that fits: the store opens, or names
what is damaged, with little memory and at once.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from random import Random

import pytest

from kraftlab.quorum.core import batch
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.storage import MetadataStore
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFileSystem

from .conftest import IDENTITY, Builder

pytestmark = pytest.mark.usefixtures("little_memory")

CASE_S_MAX = 1.0
BATCH = {"magic": (0, "I"), "length": (4, "I"), "crc": (8, "I"), "base_offset": (12, "Q"), "epoch": (20, "I")}
BATCH |= {"attributes": (24, "H"), "record_count": (26, "H"), "append_time": (28, "Q"), "high_watermark": (36, "Q")}
BATCH |= {"previous_crc": (44, "I")}
"""Field of a batch's header → its place and format."""
PAGE = {"magic": (0, "I"), "version": (4, "H"), "id_length": (6, "H"), "generation": (88, "I"), "base_offset": (92, "Q")}
"""Field of a segment's header page → its place and format."""
DAMAGE = (StorageError, CorruptBatch, ValueError)


def whole(builder: Builder) -> tuple[SimulatedFileSystem, list[str]]:
    """A store with two segments and a snapshot, and the paths of its files."""
    disk = SimulatedFileSystem(Random(1))
    store = open_store(disk)
    written = builder.log(8, stamp_behind=1)
    builder.append(store.log, written)
    store.log.flush()
    builder.snapshot(store, written[3])
    store.close()
    return disk, [path for path in disk.snapshot() if path.endswith((".log", ".checkpoint"))]


def open_store(disk: SimulatedFileSystem) -> MetadataStore:
    settings = {"segment_bytes": HEADER_PAGE_BYTES + 300, "preallocate_bytes": 8192, "cache_bytes": 200}
    return MetadataStore.open(disk, "/data", IDENTITY.cluster_id, IDENTITY.directory_id, sole_voter=True, **settings)


def changes(
    data: bytes, start: int, fields: dict[str, tuple[int, str]], covered: slice, crc_at: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the name of a changed field, its value, and the bytes with it: without, and with, the right CRC."""
    for field, (at, form) in fields.items():
        bits = 8 * struct.calcsize(form)
        for value in (0, 2**31 - 1, 2**32 - 1, 2**bits - 1, len(data) - start - at + 1):
            changed = bytearray(data)
            struct.pack_into(">" + form, changed, start + at, value % 2**bits)
            yield f"{field} = {value}", bytes(changed)
            struct.pack_into(">I", changed, crc_at, zlib.crc32(bytes(changed[covered])))
            yield f"{field} = {value}, crc fixed", bytes(changed)


def cases(path: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    position = 0
    if path.endswith(".log"):
        position = HEADER_PAGE_BYTES
        end = HEADER_PAGE_BYTES - 4
        yield from changes(data, 0, PAGE, slice(0, end), end)
    last = position
    while data[position : position + 4] == struct.pack(">I", batch.MAGIC):
        last, position = position, position + batch.read_header(data, position).size_bytes
    yield from changes(data, last, BATCH, slice(last + batch.LENGTH_FROM, position), last + batch.CRC_AT)


def use(disk: SimulatedFileSystem) -> None:
    try:
        store = open_store(disk)
    except DAMAGE:
        return
    with closing(store):
        for offset in (store.log.start_offset, max(store.log.end_offset - 1, 0)):
            with suppress(*DAMAGE):
                batch.check_all(store.log.read(offset, 1 << 20))
        for position in store.snapshots.ids():
            with suppress(*DAMAGE), closing(store.snapshots.reader(position)) as reader:
                list(reader.batches())


def test_no_number_in_a_file_of_the_metadata_log_is_believed(builder: Builder) -> None:
    disk, paths = whole(builder)
    assert {path.rpartition(".")[2] for path in paths} == {"log", "checkpoint"}
    for path in paths:
        for name, data in cases(path, bytes(disk.snapshot()[path])):
            damaged, _ = whole(builder)
            with closing(damaged.open(path)) as file:
                file.pwrite(data, 0)
                file.fdatasync()
            begun = time.process_time()
            try:
                use(damaged)
            except Exception as error:
                raise AssertionError(f"{path}: {name}") from error
            assert time.process_time() - begun < CASE_S_MAX, f"{path}: {name}"

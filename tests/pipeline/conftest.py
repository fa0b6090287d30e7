"""Recordings, a naive encoder of the tables of schemas, metadata logs made of it, and made-up histories of partitions."""

from __future__ import annotations

import base64
import lzma
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.messages.schema import FORMATS, Field, Structure
from kraftlab.metadata import codec
from kraftlab.pipeline.audits.life_cycles import CHANGE, CREATE, SNAPSHOT, Change, PartitionKey, Replicas
from kraftlab.pipeline.kraft_log.batches import Record as KafkaRecord
from kraftlab.pipeline.kraft_log.reader import read_file
from kraftlab.pipeline.kraft_log.records import RecordType, json_name
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.quorum.core import OffsetAndEpoch
from kraftlab.quorum.core import batch as own_batch
from kraftlab.quorum.storage import LogIdentity, RealFileSystem
from kraftlab.quorum.storage.identity import PARTITION_DIRECTORY
from kraftlab.quorum.storage.segment import SegmentHeader, segment_name
from kraftlab.quorum.storage.snapshot_file import SnapshotEncoder, snapshot_name
from kraftlab.records.record_batch import CONTROL, Record, build_batch

DATA = Path(__file__).parents[2] / "examples" / "metadata-log"


@pytest.fixture(scope="module", autouse=True)
def flushes_are_free(disks_without_waiting: None) -> None:
    """Flushes would be a large part of the time of lakes."""


@pytest.fixture(scope="session")
def kafka_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded log of Kafka's, segment and snapshots."""
    directory = tmp_path_factory.mktemp("segments") / "__cluster_metadata-0"
    directory.mkdir()
    for packed in DATA.glob("*.xz"):
        if not packed.name.endswith(".jsonl.xz"):
            (directory / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return directory


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks one recorded file by its name."""
    directory = tmp_path_factory.mktemp("recordings")

    def unpack(name: str) -> Path:
        path = directory / name
        if not path.exists():
            path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
        return path

    return unpack


@pytest.fixture(scope="session")
def shown() -> Callable[[bytes], bytes]:
    """Text that Kafka's own tool printed, with the secrets hidden as ours are."""
    return lambda printed: re.sub(rb'"(salt|storedKey|serverKey)":"[^"]*"', rb'"\1":"[hidden]"', printed)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _encode_value(field: Field, value: Any, version: int) -> bytes:
    if value is None:
        return _varint(0)
    if field.is_array:
        one = field._replace(is_array=False)
        return _varint(len(value) + 1) + b"".join(_encode_value(one, item, version) for item in value)
    if not isinstance(field.kind, str):
        return _encode_fields(field.kind, value, version)
    if field.kind == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if field.kind in FORMATS:
        return struct.pack(">" + FORMATS[field.kind], float(value) if field.kind == "float64" else value)
    raw = value.encode() if field.kind == "string" else base64.b64decode(value)
    return _varint(len(raw) + 1) + raw


def _encode_fields(kind: type[Structure], values: dict[str, Any], version: int, unknown_tag: bytes | None = None) -> bytes:
    present = [(json_name(field.name), field) for field in kind.FIELDS if field.is_in(version)]
    plain = [_encode_value(field, values[name], version) for name, field in present if field.tag < 0]
    tagged = {
        field.tag: _encode_value(field, values[name], version) for name, field in present if field.tag >= 0 and name in values
    }
    if unknown_tag is not None:
        tagged[1000] = unknown_tag
    tags = [_varint(tag) + _varint(len(raw)) + raw for tag, raw in sorted(tagged.items())]
    return b"".join(plain) + _varint(len(tags)) + b"".join(tags)


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """(schema, version, values, unknown_tag=None) → the record's fields, without its frame."""

    def encode(schema: RecordType, version: int, values: dict[str, Any], unknown_tag: bytes | None = None) -> bytes:
        return _encode_fields(schema.kind, values, version, unknown_tag)

    return encode


@pytest.fixture(scope="session")
def frame() -> Callable[..., bytes]:
    """(type number, version, fields) → a record's value."""

    def frame(number: int, version: int, fields: bytes, frame_version: int = 1) -> bytes:
        return _varint(frame_version) + _varint(number) + _varint(version) + fields

    return frame


@pytest.fixture(scope="session")
def batch() -> Callable[..., bytes]:
    """(values, base_offset) → a batch of records as a controller writes it; `control` is the type number of control records."""

    def batch(values: Iterable[bytes], base_offset: int = 0, *, control: int | None = None, codec: int = 0) -> bytes:
        key = None if control is None else struct.pack(">hh", 0, control)
        records = [Record(key, value, 1_700_000_000_000 + index) for index, value in enumerate(values)]
        attributes = (CONTROL if control is not None else 0) | codec
        return bytes(build_batch(records, base_offset=base_offset, leader_epoch=1, attributes=attributes))

    return batch


class OwnLog:
    """The directory of one of our controllers, written batch by batch as a node would."""

    def __init__(self, directory: Path, node_id: int = 1, cluster_id: str = "test-cluster") -> None:
        self.directory = directory
        self.partition = directory / PARTITION_DIRECTORY
        self.partition.mkdir(parents=True)
        self.identity = LogIdentity(cluster_id, bytes([node_id] * 16), 0)
        meta_properties.write(directory, MetaProperties(cluster_id, node_id, bytes([node_id] * 16)))
        self.next_offset, self.crc, self.time_ms = 0, own_batch.NO_PREVIOUS_CRC, 1_700_000_000_000

    def batch(
        self, records: list[Any], *, epoch: int = 1, stamp: int | None = None, control: bool = False, body: bytes | None = None
    ) -> bytes:
        """The next batch, one second after the one before; by default its high watermark is where it begins."""
        if body is None:
            body = own_batch.encode_control(records) if control else codec.encode(records)[0]
        data, self.crc = own_batch.encode(
            body,
            base_offset=self.next_offset,
            epoch=epoch,
            record_count=len(records),
            append_time_ms=self.time_ms,
            high_watermark=self.next_offset if stamp is None else stamp,
            previous_crc=self.crc,
            attributes=own_batch.CONTROL if control else 0,
        )
        self.next_offset += len(records)
        self.time_ms += 1000
        return data

    def segment(self, batches: list[list[Any]] | bytes, *, base_offset: int | None = None, zeros: int = 512) -> Path:
        """A segment with these batches (lists of records, or bytes as they are) and the rest that was reserved."""
        base = self.next_offset if base_offset is None else base_offset
        page = SegmentHeader(self.identity, base, 0, self.crc).encode()
        body = batches if isinstance(batches, bytes) else b"".join(self.batch(records) for records in batches)
        path = self.partition / segment_name(base)
        path.write_bytes(page + body + bytes(zeros))
        return path

    def snapshot(self, end_offset: int, records: list[Any], epoch: int = 1) -> Path:
        """A whole snapshot of these records, in batches of two."""
        path = self.partition / snapshot_name(OffsetAndEpoch(end_offset, epoch))
        file_system = RealFileSystem()
        file = file_system.open(str(path), create=True)
        header = own_batch.SnapshotHeader(0, self.identity.cluster_id, 0, 1, self.time_ms)
        encoder = SnapshotEncoder(file, OffsetAndEpoch(end_offset, epoch), [header])
        for start in range(0, len(records), 2):
            encoder.append(*codec.encode(records[start : start + 2]))
        encoder.finish()
        file.close()
        return path


@pytest.fixture
def own_log(tmp_path: Path) -> Callable[..., OwnLog]:
    """(node_id, cluster_id) → a new directory of a controller of ours."""

    def make(node_id: int = 1, cluster_id: str = "test-cluster") -> OwnLog:
        return OwnLog(tmp_path / f"controller-{node_id}", node_id, cluster_id)

    return make


Rows = list[tuple[PartitionKey, Change]]

BROKERS = st.integers(0, 5)
LISTS = st.lists(BROKERS, unique=True, max_size=4).map(tuple)
REPLICAS = st.lists(BROKERS, unique=True, min_size=1, max_size=4).map(tuple)
PAIRS = st.sampled_from([(), (), (0,), (1,), (0, 1), (4, 5)])


@st.composite
def _changes(draw: st.DrawFn) -> Change:
    """Any row: which fields are set is drawn on its own."""
    kind = draw(st.sampled_from([CHANGE] * 8 + [SNAPSHOT]))
    every = kind == SNAPSHOT

    def given(values: st.SearchStrategy[Any]) -> Any:
        return draw(values if every else st.none() | values)

    replicas = given(REPLICAS)
    return Change(
        offset=draw(st.integers(0, 2)),
        ts_ms=draw(st.integers(0, 100)),
        kind=kind,
        isr=given(LISTS),
        leader=given(st.integers(-1, 5)),
        replicas=replicas,
        adding=given(PAIRS),
        removing=given(PAIRS),
        directories=tuple(f"d{replica}" for replica in replicas) if replicas is not None and draw(st.booleans()) else None,
    )


@st.composite
def _logs(draw: st.DrawFn) -> Rows:
    """A few partitions' rows in the order of the log; a log may begin with a creation, a snapshot, or in the middle."""
    keys = [PartitionKey(f"id-{topic}", topic, partition) for topic in ("a", "b") for partition in (0, 1)]
    begin = {key: draw(st.sampled_from([CREATE, SNAPSHOT, CHANGE])) for key in keys}
    rows: Rows = []
    offset = 0
    for key, change in draw(st.lists(st.tuples(st.sampled_from(keys), _changes()), max_size=25)):
        offset += change.offset
        kind = begin.pop(key, change.kind)
        if kind == CREATE:
            replicas = change.replicas or (1, 2)
            change = Change(0, change.ts_ms, CREATE, replicas, replicas[0], replicas, (), ())
        elif kind == SNAPSHOT:
            change = change._replace(
                replicas=change.replicas or (1, 2), adding=change.adding or (), removing=change.removing or ()
            )
        rows.append((key, change._replace(offset=offset, kind=kind)))
    return rows


@pytest.fixture(scope="session")
def logs() -> st.SearchStrategy[Rows]:
    """Hypothesis's strategy of logs."""
    return _logs()


class Recording(NamedTuple):
    """The partitions of a real Kafka's log."""

    rows: Rows
    deletions: dict[str, tuple[int, int]]


def _tuple(values: list[int] | None) -> Replicas | None:
    return None if values is None else tuple(values)


@pytest.fixture(scope="session")
def kafka(kafka_log: Path) -> Recording:
    """The recorded log, straight from its decoder."""
    path = kafka_log / "00000000000000000000.log"
    names: dict[str, str] = {}
    rows: Rows = []
    deletions = {}
    for batch in read_file(path):
        for record in batch.records:
            if not isinstance(record, KafkaRecord):
                continue
            data = record.data
            if record.type == "TOPIC_RECORD":
                names[data["topicId"]] = data["name"]
            elif record.type == "REMOVE_TOPIC_RECORD":
                deletions[data["topicId"]] = (record.offset, record.timestamp_ms)
            elif record.type in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
                key = PartitionKey(data["topicId"], names[data["topicId"]], data["partitionId"])
                lists = {name: _tuple(data.get(name)) for name in ("isr", "replicas", "addingReplicas", "removingReplicas")}
                change = Change(
                    record.offset,
                    record.timestamp_ms,
                    CREATE if record.type == "PARTITION_RECORD" else CHANGE,
                    lists["isr"],
                    data.get("leader"),
                    lists["replicas"],
                    lists["addingReplicas"],
                    lists["removingReplicas"],
                    _tuple(data.get("directories")),
                )
                rows.append((key, change))
    return Recording(rows, deletions)


@pytest.fixture(scope="session")
def recorded_text() -> Callable[[str], bytes]:
    """Read the history of the recorded cluster (`history.json`) or its last state (`final-state.json`)."""
    return lambda name: lzma.decompress((DATA / f"{name}.xz").read_bytes())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))

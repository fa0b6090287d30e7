"""Batches become rows of silver: what both formats say, with what cannot be decoded kept apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.metadata import codec
from kraftlab.metadata import records as r
from kraftlab.pipeline.kraft_log.records import uuid_text
from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.pipeline.tables import decoding
from kraftlab.pipeline.tables.batch_rows import COLUMNS
from kraftlab.pipeline.tables.partition_rows import TABLE as CHANGES
from kraftlab.pipeline.tables.silver import Transactions, needed_snapshots, transactions
from kraftlab.pipeline.tables.topic_names import TopicNames, uuid_texts
from kraftlab.quorum.core import batch as own_batch

ID = bytes(range(16))
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
OTHER_ID = bytes([255] * 16)
Make = Callable[..., Any]


def _own(
    body: bytes, count: int, base_offset: int = 10, *, control: bool = False, segment: str = "0.log", offset: int | None = None
) -> Any:
    data, _ = own_batch.encode(
        body,
        base_offset=base_offset,
        epoch=3,
        record_count=count,
        append_time_ms=77,
        high_watermark=0,
        previous_crc=0,
        attributes=own_batch.CONTROL if control else 0,
    )
    return (segment, base_offset if offset is None else offset, 3, 77, data, "kraftlab")


def _arrow(*rows: Any) -> pa.RecordBatch:
    schema = arrow_schema("bronze.batches")
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, schema.field(name).type) for name, column in zip(COLUMNS, columns, strict=True)], names=list(COLUMNS)
    )


def _tables(*rows: Any, spans: Any = (), names: Any = None) -> tuple[list[tuple[str, dict[str, Any]]], decoding.Decoder]:
    decoder = decoding.Decoder({ID_TEXT: "orders"} if names is None else names, spans)
    found = list(decoder.tables(iter([_arrow(*rows)])))
    for table, batch in found:
        assert batch.schema == arrow_schema(table)
        batch.validate(full=True)
    return [(table, row) for table, batch in found for row in batch.to_pylist()], decoder


def _partitions(*rows: Any, spans: Any = ()) -> list[dict[str, Any]]:
    return [row for table, row in _tables(*rows, spans=spans)[0] if table == CHANGES]


def _others(*rows: Any, spans: Any = (), names: Any = None) -> list[dict[str, Any]]:
    """Rows of all other tables: what is not null of them, and `t`, their table."""
    return [
        {"t": table.removeprefix("silver."), **{name: value for name, value in row.items() if value is not None}}
        for table, row in _tables(*rows, spans=spans, names=names)[0]
        if table != CHANGES
    ]


CHANGE = r.PartitionChange(0, 1, ID, isr=(1, 2), leader=2, adding_replicas=(), target_replicas=(4,), directories=(OTHER_ID,))


def test_a_change_leaves_null_what_it_does_not_change() -> None:
    (row,) = _partitions(_own(*codec.encode([CHANGE])))
    assert row == {
        "offset": 10,
        "leader_epoch": 3,
        "ts_ms": 77,
        "idx_in_batch": 0,
        "kind": "change",
        "topic_id": ID_TEXT,
        "topic": "orders",
        "partition": 1,
        "isr": [1, 2],
        "leader": 2,
        "replicas": None,
        "adding": [],
        "removing": None,
        "directories": ["_____________________w"],
        "partition_epoch": None,
        "rec_version": 0,
        "original": None,
        "target": [4],
    }


def test_partitions_stand_among_changes_in_order() -> None:
    partition = r.Partition(0, 2, ID, (1, 2), (1,), leader=1, partition_epoch=9)
    rows = _partitions(_own(*codec.encode([r.Topic(0, "a", ID), partition, CHANGE])))
    assert [(row["offset"], row["idx_in_batch"], row["kind"], row["partition_epoch"]) for row in rows] == [
        (11, 1, "create", 9),
        (12, 2, "change", None),
    ]
    assert rows[0]["adding"] == []


PARTITION = r.Partition(0, 2, ID, (1, 2), (1,), leader=1, partition_epoch=9, directories=(ID, OTHER_ID))


@pytest.mark.parametrize("spans", [(), [(12, 13)], [(11, 20), (500, 600)]])
def test_batches_decoded_as_a_whole_are_the_same_rows_as_record_by_record(spans: Any) -> None:
    snapshot = ("00000000000000000050-0000000003.checkpoint", 49)
    batches = [([CHANGE] * 2, 10, None), ([PARTITION] * 3, 12, None), ([CHANGE], 15, None), ([PARTITION] * 2, 7, snapshot)]

    def rows(*more: Any) -> list[dict[str, Any]]:
        made = []
        for records, base, of_snapshot in batches:
            segment, offset = of_snapshot or ("0.log", base)
            made.append(_own(*codec.encode([*records, *more]), base, segment=segment, offset=offset))
        return _partitions(*made, spans=spans)

    assert rows() == rows(r.NoOp(0))
    assert [row["offset"] for row in rows()] == [*(at for at in range(10, 16) if not _is_within(at, spans)), 49, 49]


@pytest.mark.parametrize("name", ["new", "né"])
def test_topics_decoded_as_a_whole_are_the_same_rows_as_record_by_record(name: str) -> None:
    topics = [r.Topic(0, "orders", ID), r.Topic(0, name, OTHER_ID)]
    snapshot = {"segment": "00000000000000000050-0000000003.checkpoint", "offset": 49}

    def decoded(*more: Any) -> Any:
        batches = _own(*codec.encode([*topics, *more])), _own(*codec.encode([*topics, *more]), 7, **snapshot)
        (marks,) = pa.Table.from_batches(decoding.marks(iter([_arrow(*batches)]))).combine_chunks().to_batches()
        found, decoder = _tables(*batches)
        return [row for _, row in found], decoder.unnamed, [(row["topic_id"], row["name"]) for row in marks.to_pylist()]

    assert decoded() == decoded(r.NoOp(0))
    assert [(row["offset"], row["idx_in_batch"], row["kind"]) for row in decoded()[0]] == [
        (10, 0, "log"),
        (11, 1, "log"),
        (49, 7, "snapshot"),
        (49, 8, "snapshot"),
    ]
    assert decoded()[1] == {"_____________________w": name}


def _is_within(offset: int, spans: Any) -> bool:
    return any(start <= offset < end for start, end in spans)


_IDS = st.lists(
    st.binary(min_size=16, max_size=16) | st.integers(0, 40).map(lambda number: bytes(15) + bytes([number])), unique=True
)


@settings(deadline=None)
@given(_IDS, _IDS, st.sampled_from([[], ["short"]]))
def test_names_are_found_by_id_however_many_are_asked_for(known: list[bytes], asked: list[bytes], more: list[str]) -> None:
    texts = [*map(uuid_text, known), *more]
    names = TopicNames.of({text: f"name of {text}" for text in texts})
    questions = [*map(uuid_text, asked), *texts, *more]
    ids = pa.array(["cut off", *questions], pa.string()).slice(1)
    assert names.of_ids(ids).to_pylist() == [f"name of {text}" if text in texts else None for text in questions]
    assert names.missing(ids, ids) == {text: text for text in questions if text not in texts}


@settings(deadline=None)
@given(st.lists(st.binary(min_size=16, max_size=16), max_size=40))
def test_uuids_become_text_in_bulk_as_one_by_one(uuids: list[bytes]) -> None:
    found = uuid_texts(np.frombuffer(b"".join(uuids), np.uint8).reshape(-1, 16))
    found.validate(full=True)
    assert found.to_pylist() == [uuid_text(uuid) for uuid in uuids]


def test_a_record_of_a_snapshot_has_its_offset_and_its_place_in_it() -> None:
    partition = r.Partition(0, 2, ID, (1, 2), (1,))
    segment = "00000000000000000050-0000000003.checkpoint"
    rows = _partitions(_own(*codec.encode([partition, partition]), 7, segment=segment, offset=49))
    assert [(row["offset"], row["idx_in_batch"], row["kind"]) for row in rows] == [(49, 7, "snapshot"), (49, 8, "snapshot")]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ([5, 1, 2, ID], "unknown version 1 of PARTITION_CHANGE_RECORD"),
        ([5, 0, "two", ID], "PartitionChange: "),
        ([5, 0, 2, ID, [2**40]], "a number is too large"),
        ([5, 0, 2, b"short"], "PartitionChange: "),
        ([3, 0, 2, ID, [1], [1], [], [], 2**35], "a number is too large"),
    ],
)
def test_a_partition_record_that_cannot_be_a_row_is_kept_among_the_others(record: list[Any], error: str) -> None:
    row = _own(msgpack.packb([[20, 0], record, [5, 0, 1, ID]]), 3)
    after = _own(*codec.encode([CHANGE] * 2), 13)
    assert [(each["offset"], each["idx_in_batch"]) for each in _partitions(row, after)] == [(12, 2), (13, 0), (14, 1)]
    (kept,) = _others(row, after)
    assert (kept["t"], kept["offset"], kept["idx_in_batch"], kept["type"]) == ("other_records", 11, 1, record[0])
    assert error in kept["error"]
    assert msgpack.unpackb(kept["raw"]) == record


def test_one_that_cannot_be_a_row_among_changes_alone_is_kept_with_its_place() -> None:
    row = _own(msgpack.packb([[5, 0, 1, ID], [5, 0, 2, ID, [2**40]], [5, 0, 3, ID]]), 3)
    assert [(each["offset"], each["partition"]) for each in _partitions(row)] == [(10, 1), (12, 3)]
    (kept,) = _others(row)
    assert (kept["offset"], kept["idx_in_batch"], msgpack.unpackb(kept["raw"])[2]) == (11, 1, 2)


def test_one_that_cannot_be_a_row_may_be_all_that_a_task_is_given() -> None:
    row = _own(msgpack.packb([[5, 0, 2, ID, [2**40]]]), 1)
    assert _partitions(row) == []
    (kept,) = _others(row)
    assert (kept["offset"], kept["error"]) == (10, "a number is too large for the table's column")


def test_aborted_stretches_are_left_out() -> None:
    rows = (_own(*codec.encode([CHANGE] * 3)), _own(*codec.encode([CHANGE, CHANGE]), 13))
    assert [row["offset"] for row in _partitions(*rows, spans=[(11, 14)])] == [10, 14]
    topics = _own(*codec.encode([r.Topic(0, "a", ID), r.Topic(0, "b", ID)]))
    assert [row.get("name") for row in _others(topics, spans=[(0, 11)])] == ["b"]


def test_every_other_record_finds_its_table() -> None:
    records = [
        r.Topic(0, "orders", ID),
        r.RemoveTopic(0, ID),
        r.RegisterBroker(0, 4, ID, 10, rack="a", log_dirs=(OTHER_ID,)),
        r.BrokerRegistrationChange(0, 4, 10, fenced=False, log_dirs=()),
        r.UnregisterBroker(0, 4, 10),
        r.Config(0, r.RESOURCE_TOPIC, "orders", "retention.ms", None),
        r.Config(0, 99, "x", "k", "v"),
        r.FeatureLevel(0, "metadata.version", 25),
        r.NoOp(0),
    ]
    rows = _others(_own(*codec.encode(records)))
    place = {"leader_epoch": 3, "ts_ms": 77, "kind": "log"}
    tables = [{key: value for key, value in row.items() if key not in (*place, "offset", "idx_in_batch", "raw")} for row in rows]
    assert tables == [
        {"t": "topics", "topic_id": ID_TEXT, "name": "orders", "op": "create"},
        {"t": "topics", "topic_id": ID_TEXT, "name": "orders", "op": "delete"},
        {
            "t": "brokers",
            "broker_id": 4,
            "incarnation": ID_TEXT,
            "rack": "a",
            "log_dirs": ["_____________________w"],
            "fenced": True,
            "op": "register",
        },
        {"t": "brokers", "broker_id": 4, "log_dirs": [], "fenced": False, "op": "change"},
        {"t": "brokers", "broker_id": 4, "op": "unregister"},
        {"t": "configs", "resource_type": "TOPIC", "resource": "orders", "key": "retention.ms"},
        {"t": "configs", "resource_type": "99", "resource": "x", "key": "k", "value": "v"},
        {"t": "other_records", "type": 12, "version": 0, "name": "FEATURE_LEVEL_RECORD"},
    ]


def test_unknown_types_and_control_records_are_kept_with_their_bytes() -> None:
    unknown = _own(msgpack.packb([[777, 2, "x"]]), 1)
    control = _own(own_batch.encode_control([own_batch.LeaderChange(0, 1, (1,), (1,))]), 1, 11, control=True)
    first, second = _others(unknown, control)
    assert (first["type"], first["version"], first["error"], first["kind"]) == (777, 2, "unknown record type 777", "log")
    assert msgpack.unpackb(first["raw"]) == [777, 2, "x"]
    assert (second["type"], second["name"], second["kind"], second["offset"]) == (2, "LeaderChange", "control", 11)
    assert _partitions(unknown, control) == []


def test_kafkas_records_become_the_same_rows(batch: Make, frame: Make, encode: Make) -> None:
    from kraftlab.pipeline.kraft_log.records import METADATA_RECORDS

    schemas = {schema.number: schema for schema in METADATA_RECORDS}
    change = {"partitionId": 1, "topicId": ID_TEXT, "isr": [1, 2], "leader": 2, "addingReplicas": []}
    fence = {"brokerId": 4, "brokerEpoch": 1, "fenced": -1}
    values = [
        frame(5, 2, encode(schemas[5], 2, change)),
        frame(17, 3, encode(schemas[17], 3, fence)),
        frame(5, 9, b"\x00"),
        frame(99, 0, b"\x01"),
    ]
    row = ("0.log", 40, 3, 77, batch(values, 40), "kafka")
    (found,) = _partitions(row)
    assert (found["offset"], found["isr"], found["leader"], found["adding"], found["replicas"]) == (40, [1, 2], 2, [], None)
    assert (found["topic_id"], found["topic"], found["rec_version"], found["kind"]) == (ID_TEXT, "orders", 2, "change")
    newer, unknown, fenced = sorted(_others(row), key=lambda each: each["t"] == "brokers")
    assert (fenced["t"], fenced["broker_id"], fenced["fenced"]) == ("brokers", 4, False)
    assert (newer["t"], newer["offset"], newer["type"], newer["version"]) == ("other_records", 42, 5, 9)
    assert unknown["error"] == "unknown record type 99"


def test_names_and_markers_that_were_not_given_are_reported() -> None:
    records = [r.BeginTransaction(0), r.Topic(0, "new", OTHER_ID), r.Topic(0, "orders", ID), r.AbortTransaction(0)]
    _, decoder = _tables(_own(*codec.encode(records)))
    assert decoder.markers == [(10, 23), (13, 25)]
    assert decoder.unnamed == {"_____________________w": "new"}


def test_marks_are_found_and_the_bytes_with_which_they_begin_are_those_that_programs_write(
    batch: Make, frame: Make, encode: Make
) -> None:
    from kraftlab.pipeline.kraft_log.records import METADATA_RECORDS

    schemas = {schema.number: schema for schema in METADATA_RECORDS}
    own = _own(*codec.encode([CHANGE, r.Topic(0, "orders", ID), r.EndTransaction(0)]))
    values = [
        frame(2, 0, encode(schemas[2], 0, {"name": "clicks", "topicId": ID_TEXT})),
        frame(23, 0, encode(schemas[23], 0, {"name": None})),
    ]
    snapshot = _own(*codec.encode([r.Topic(0, "old", ID), r.EndTransaction(0)]), segment="1.checkpoint")
    rows = (own, ("0.log", 40, 3, 77, batch(values, 40), "kafka"), snapshot)
    found = [tuple(row.values()) for batch in decoding.marks(iter([_arrow(*rows)])) for row in batch.to_pylist()]
    assert found == [
        (11, 2, ID_TEXT, "orders"),
        (12, 24, None, None),
        (40, 2, ID_TEXT, "clicks"),
        (41, 23, None, None),
        (10, 2, ID_TEXT, "old"),
    ]
    plain = _own(*codec.encode([CHANGE] * 3))
    suspects = decoding.with_marks(_arrow(plain, *rows, plain).slice(1))
    assert suspects.column("payload").to_pylist() == [row[4] for row in rows]
    for row, format_name in zip(rows, ("kraftlab", "kafka", "kraftlab"), strict=True):
        assert sum(start in row[4] for start in decoding.STARTS[format_name]) == 2


def test_transactions_are_paired() -> None:
    assert transactions([]) == Transactions((), None)
    assert transactions([(5, 23), (9, 24)]) == Transactions((), None)
    assert transactions([(9, 25), (5, 23), (12, 23), (15, 25), (20, 23)]) == Transactions(((5, 10), (12, 16)), 20)
    assert transactions([(3, 25), (4, 24)]) == Transactions((), None), "it began before a snapshot"


def test_snapshots_are_needed_after_holes_only() -> None:
    found = [("b", 100), ("c", 200), ("start", 0)]
    assert needed_snapshots([], found, True) == {"start"}
    assert needed_snapshots([(0, 50)], found, True) == {"start", "b"}
    assert needed_snapshots([(0, 100), (150, 160)], found, True) == {"start", "b", "c"}
    assert needed_snapshots([(0, 300)], found, True) == {"start"}
    assert needed_snapshots([], found, False) == {"start", "c"}

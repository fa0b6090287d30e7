"""Records of a real cluster decode to the output of its own tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.pipeline.kraft_log.batches import Batch, ControlRecord, Record
from kraftlab.pipeline.kraft_log.dump import dump_file
from kraftlab.pipeline.kraft_log.reader import read_file
from kraftlab.pipeline.kraft_log.records import CONTROL_RECORDS, METADATA_RECORDS

SEGMENT = "00000000000000000000.log"
FILES = (
    SEGMENT,
    "00000000000000000000-0000000000.checkpoint",
    "00000000000000003988-0000000003.checkpoint",
    "00000000000000005943-0000000003.checkpoint",
)
NEVER_WRITTEN_BY_THE_RECORDED_CLUSTER = {
    "FENCE_BROKER_RECORD",
    "UNFENCE_BROKER_RECORD",
    "DELEGATION_TOKEN_RECORD",
    "REMOVE_DELEGATION_TOKEN_RECORD",
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    "ABORT_TRANSACTION_RECORD",
    "ZK_MIGRATION_STATE_RECORD",
}

Recording = Callable[[str], Path]
Shown = Callable[[bytes], bytes]


@pytest.mark.parametrize("name", FILES)
def test_every_record_of_a_recording_decodes_as_kafka_prints_it(recording: Recording, shown: Shown, name: str) -> None:
    expected = shown(recording(f"{name}.dump.jsonl").read_bytes()).splitlines()

    lines = list(dump_file(recording(name)))

    assert [json.loads(line.json) for line in lines] == [json.loads(line) for line in expected]
    assert not any(line.faults or line.notes for line in lines)


@pytest.mark.parametrize("name", FILES)
def test_a_dump_is_equal_to_kafkas_byte_by_byte_but_for_secrets(recording: Recording, shown: Shown, name: str) -> None:
    dumped = b"".join(line.json + b"\n" for line in dump_file(recording(name)))

    assert dumped == shown(recording(f"{name}.dump.jsonl").read_bytes())


def test_batches_follow_each_other_to_the_end_of_the_file(recording: Recording) -> None:
    position = 0
    for entry in read_file(recording(SEGMENT)):
        assert isinstance(entry, Batch)
        assert entry.position == position
        assert len(entry.records) == entry.record_count
        position += entry.size_bytes

    assert position == recording(SEGMENT).stat().st_size


def test_the_recordings_hold_every_record_type_but_those_listed(recording: Recording) -> None:
    seen: set[str] = set()
    for name in FILES:
        for entry in read_file(recording(name)):
            assert isinstance(entry, Batch)
            seen |= {record.type for record in entry.records if isinstance(record, Record)}
            seen |= {record.control for record in entry.records if isinstance(record, ControlRecord)}

    known = {schema.name for schema in METADATA_RECORDS + CONTROL_RECORDS}
    assert known - seen == NEVER_WRITTEN_BY_THE_RECORDED_CLUSTER
    assert not seen - known

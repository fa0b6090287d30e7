"""Lines of `dump-log` that no file at hand brings about."""

from __future__ import annotations

from kraftlab.cli.dump.text import broken_line, control_document, data_record_line, data_records, metadata_record_line
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import ForcedStandalone, LeaderChange, SnapshotFooter
from kraftlab.quorum.core.types import VoterSet
from kraftlab.records.record_batch import Record, build_batch, read_header

CONTROL = 1 << 5


def control_line(kind: int) -> str:
    """Return the line of a control record of this type."""
    record = Record(b"\0\0" + kind.to_bytes(2, "big"), b"", 7)
    data = build_batch([record], base_offset=3, attributes=CONTROL)
    (document,) = data_records(read_header(data), data)
    return data_record_line(document, with_place=False, with_payload=True)


def test_control_records_of_other_logs_are_named_with_their_number() -> None:
    assert control_line(1) == "| endTxnMarker: COMMIT"
    assert control_line(2) == "| controlType: LEADER_CHANGE(2)"
    assert control_line(77) == "| controlType: UNKNOWN(77)"


def test_a_tombstone_has_no_payload_and_odd_bytes_do_no_harm() -> None:
    data = build_batch([Record(b"k\xff", None, 7)], base_offset=3)
    (document,) = data_records(read_header(data), data)
    assert data_record_line(document, with_place=True, with_payload=True) == (
        "| offset: 3 CreateTime: 7 keySize: 2 valueSize: -1 sequence: -1 headerKeys: [] key: k\ufffd"
    )


def test_unreadable_records_are_reported() -> None:
    data = bytearray(build_batch([Record(b"k", b"v", 7)]))
    data[61] = 0x7F
    *_, document = data_records(read_header(bytes(data)), bytes(data))
    assert document["error"].startswith("its records cannot be read: ")
    assert data_record_line(document, with_place=True, with_payload=True) == f"| {document['error']}"


def test_control_records_of_the_metadata_log_have_kafkas_names() -> None:
    leader = control_document(LeaderChange(0, 1, (1, 2), (2,)))
    assert leader == {
        "control": "LeaderChange",
        "data": {"version": 0, "leaderId": 1, "voters": [{"voterId": 1}, {"voterId": 2}], "grantingVoters": [{"voterId": 2}]},
    }
    assert control_document(SnapshotFooter(0, b"12", 4))["data"] == {"version": 0, "digest": "MTI=", "recordCount": 4}
    forced = control_document(ForcedStandalone(0, 1, ReplicaKey(1, bytes(16)), VoterSet(()), 4, 5, 6))
    assert forced["data"]["previousVoters"] == []
    place = {"offset": 4, "createTime": 9, "valueSize": 12}
    assert metadata_record_line({**place, "control": "KRaftVersion", "data": {"kRaftVersion": 1}}, with_place=True) == (
        '| offset: 4 CreateTime: 9 keySize: -1 valueSize: 12 sequence: -1 headerKeys: [] KRaftVersion {"kRaftVersion":1}'
    )


def test_damage_has_kafkas_text_at_the_end_and_a_position_elsewhere() -> None:
    assert broken_line(90, 10, "f", 100, "why") == "Found 10 invalid bytes at the end of f from position 90 on: why"
    assert broken_line(50, 10, "f", 100, "why") == "Found 10 invalid bytes at position 50 of f: why"

"""The decoded metadata log: every record has the name of its request, and can be turned into a record again."""

from __future__ import annotations

import msgspec

from jepsen_lite.committed_log import CommittedLog, LogBatch, decoded, record_of
from kraftlab.metadata import codec
from kraftlab.metadata.moves import PlannedPartition
from kraftlab.metadata.records import (
    AnyRecord,
    BeginTransaction,
    ClientQuota,
    Config,
    EndTransaction,
    Listener,
    MovePlan,
    NoOp,
    Partition,
    QueueMoves,
    RegisterBroker,
    RequestOutcome,
    Topic,
)
from kraftlab.quorum.core.batch import LeaderChange, encode_control

_TOPIC = bytes(range(16))
_CLIENT = bytes([7]) * 16


def _outcome(sequence: int) -> RequestOutcome:
    return RequestOutcome(0, _CLIENT, sequence, b"digest", 5, b"answer")


def _log(*batches: list[AnyRecord]) -> CommittedLog:
    found, at = [], 0
    for records in batches:
        body, count = codec.encode(records)
        found.append(LogBatch(at, at + count, 1, 1000, False, body))
        at += count
    return decoded(found)


def test_records_of_a_batch_are_named_by_the_outcome_after_them() -> None:
    log = _log([NoOp(0)], [Topic(0, "t", _TOPIC), Config(0, 2, "t", "retention.ms", "7"), _outcome(3)], [NoOp(0)])
    name = f"{_CLIENT.hex()}:3"
    assert [entry.request_id for entry in log.entries] == ["", name, name, name, ""]
    assert [entry.batch_end for entry in log.entries] == [1, 4, 4, 4, 5]
    assert (log.start, log.end) == (0, 5)


def test_records_of_a_transaction_are_named_by_the_outcome_at_its_end() -> None:
    log = _log(
        [NoOp(0)], [BeginTransaction(0, "large"), Topic(0, "t", _TOPIC)], [NoOp(0)], [_outcome(4), EndTransaction(0)], [NoOp(0)]
    )
    name = f"{_CLIENT.hex()}:4"
    assert [entry.request_id for entry in log.entries] == ["", name, name, name, name, "", ""]


def test_every_kind_of_field_comes_back_from_json_as_it_was() -> None:
    records: list[AnyRecord] = [
        RegisterBroker(0, 1, _CLIENT, 5, (Listener("PEER", "h", 1),), (("f", 0, 1),), "r", log_dirs=(_TOPIC,)),
        Partition(0, 0, _TOPIC, (1, 2), (1,), directories=(_TOPIC, _CLIENT), target_replicas=(2,), original_replicas=(1,)),
        ClientQuota(0, (("user", None), ("client-id", "x")), "producer_byte_rate", 1.5),
        QueueMoves(0, 1, "me", "why", 2, ((_TOPIC, 0, 1, (1, 2), (_TOPIC,)),), plan_id="p"),
        MovePlan(0, "p", 1, 2, "me", "", (PlannedPartition(_TOPIC, 0, "t", (1,), (_TOPIC,), (2,)),)),
        _outcome(1),
    ]
    log = msgspec.json.decode(msgspec.json.encode(_log(records)), type=CommittedLog)
    assert [record_of(entry) for entry in log.entries] == records


def test_records_of_the_quorum_are_kept_but_are_not_metadata() -> None:
    body = encode_control([LeaderChange(0, 2, (1, 2, 3), (1, 2))])
    log = decoded([LogBatch(0, 1, 4, 9, True, body)])
    assert (log.entries[0].kind, log.entries[0].record["leader_id"], log.entries[0].epoch) == ("LeaderChange", 2, 4)
    assert record_of(log.entries[0]) is None

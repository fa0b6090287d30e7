"""Findings of the checker of moved data, and histories that it accepts."""

from __future__ import annotations

import msgspec
import pytest

from jepsen_lite.generators import Invocation
from jepsen_lite.history import FAIL, INFO, OK, History, Op
from jepsen_lite.verdicts import UNKNOWN, Verdict
from jepsen_lite.workload import Options, Run
from jepsen_lite.workloads import log_dirs
from jepsen_lite.workloads.log_dirs import KEYS, MovedData, MovingClient
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import ZERO
from kraftlab.metadata.peer_rpc import FetchedPartition, ReplicaFetchResponse
from kraftlab.records.record_batch import Record, build_batch

KEY = "log-dirs-0"


def judged(*ops: tuple[str, object, str, object], healed_ns: int = 0, places: object = None) -> Verdict:
    """Judge operations one after the other: function, value, outcome, result."""
    history = [
        Op(index=i, process=0, f=f, key=KEY, value=value, outcome=outcome, result=result, invoked_ns=10 * i, ended_ns=10 * i + 5)
        for i, (f, value, outcome, result) in enumerate(ops)
    ]
    data = {} if places is None else {"places": {"0": places}}
    return MovedData().check(Run(options=Options(), history=History(history), healed_ns=healed_ns, data=data))


GOOD = (
    ("append", "a", OK, 0),
    ("get", None, OK, [[0, "a"]]),
    ("append", "b", INFO, None),
    ("append", "e", INFO, None),
    ("append", "c", FAIL, None),
    ("append", "d", OK, 2),
)


@pytest.mark.parametrize("final", [[[0, "a"], [1, "b"], [2, "d"]], [[0, "a"], [1, "e"], [2, "d"]]])
def test_unknown_writes_can_be_present_or_absent(final: list[list[object]]) -> None:
    assert judged(*GOOD, ("get", None, OK, final)).valid is True


@pytest.mark.parametrize(
    ("final", "kind", "lost"),
    [
        ([[0, "a"], [1, "b"]], "lost", 1),
        ([[0, "a"], [1, "d"], [2, "b"]], "moved", 0),
        ([[0, "a"], [1, "d"], [2, "d"]], "doubled", 0),
        ([[0, "a"], [1, "c"], [2, "d"]], "failed", 0),
        ([[0, "a"], [1, "x"], [2, "d"]], "unexpected", 0),
        ([[1, "a"], [2, "d"]], "changed", 0),
    ],
)
def test_violations_are_found(final: list[list[object]], kind: str, lost: int) -> None:
    verdict = judged(*GOOD, ("get", None, OK, final))
    assert verdict.valid is False
    assert kind in verdict.details["violations"]
    assert verdict.lost == lost


def test_a_read_that_does_not_fit_its_checksum_is_seen() -> None:
    history = [
        Op(index=0, process=0, f="get", key=KEY, outcome=FAIL, error=f"{log_dirs.ROTTEN}: crc is 1", invoked_ns=0, ended_ns=5),
        Op(index=1, process=0, f="get", key=KEY, outcome=OK, result=[], invoked_ns=10, ended_ns=15),
    ]
    verdict = MovedData().check(Run(options=Options(), history=History(history)))
    assert verdict.details["violations"] == {"rotten": 1}


def test_without_a_read_after_the_faults_nothing_is_known() -> None:
    assert judged(*GOOD, healed_ns=1_000).valid == UNKNOWN


def test_a_broker_with_two_current_copies_is_seen_and_one_on_a_move_is_none() -> None:
    whole = [["d0", f"log-dirs-{number}", False] for number in range(KEYS)]
    read = ("get", None, OK, [])
    assert judged(read, places=[*whole, ["d1", KEY, True]]).valid is True
    assert judged(read, places=[*whole, ["d1", KEY, False]]).details["violations"] == {"copies": 1}
    assert judged(read, places=whole[1:]).details["violations"] == {"copies": 1}


def test_a_broker_that_cannot_be_described_makes_the_verdict_unknown() -> None:
    verdict = judged(*GOOD, ("get", None, OK, [[0, "a"], [1, "b"], [2, "d"]]), places="timed out")
    assert (verdict.valid, verdict.reason) == (
        UNKNOWN,
        "the log directories of broker 0 could not be described at the end: timed out",
    )
    assert judged(*GOOD, ("get", None, OK, [[0, "a"]]), places="timed out").valid is False


async def test_a_read_of_corrupt_bytes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    rotten = bytearray(build_batch([Record(None, b"a", 1)]))
    rotten[-1] ^= 1

    async def ask(*_: object) -> bytes:
        found = FetchedPartition(ZERO, 0, 0, 1, 0, 1, None, bytes(rotten))
        return msgspec.msgpack.encode(ReplicaFetchResponse(0, None, (found,)))

    client = MovingClient(Options(), 0)
    client.places[KEY] = log_dirs.Place(ZERO, Endpoint("127.0.0.1", 1), "cluster")
    monkeypatch.setattr(client, "ask", ask)
    ended = await client.invoke(Invocation("get", KEY), None)  # type: ignore[arg-type]
    assert ended.outcome == FAIL and ended.error.startswith(log_dirs.ROTTEN)


@pytest.mark.parametrize(("empty", "outcome"), [(0, OK), (1, OK), (1_000, FAIL)])
async def test_a_read_continues_after_an_empty_answer_while_there_is_more(
    monkeypatch: pytest.MonkeyPatch, empty: int, outcome: str
) -> None:
    whole = build_batch([Record(None, b"a", 1)])
    answers = iter([b""] * empty + [whole])

    async def ask(*_: object) -> bytes:
        found = FetchedPartition(ZERO, 0, 0, 1, 0, 1, None, next(answers))
        return msgspec.msgpack.encode(ReplicaFetchResponse(0, None, (found,)))

    client = MovingClient(Options(), 0)
    client.places[KEY] = log_dirs.Place(ZERO, Endpoint("127.0.0.1", 1), "cluster")
    monkeypatch.setattr(client, "ask", ask)
    ended = await client.invoke(Invocation("get", KEY), None)  # type: ignore[arg-type]
    assert ended.outcome == outcome
    assert ended.result == ([[0, "a"]] if outcome == OK else None)

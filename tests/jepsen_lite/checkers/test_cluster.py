"""Checkers of states reported by nodes, requests that were sent again, outages, crashes and tracebacks in logs."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from jepsen_lite.checkers.availability import Availability
from jepsen_lite.checkers.exactly_once import ExactlyOnce
from jepsen_lite.checkers.log_agreement import LogAgreement
from jepsen_lite.checkers.node_crashes import LogScan, NodeCrashes
from jepsen_lite.committed_log import CommittedLog, Entry
from jepsen_lite.history import History, Op
from jepsen_lite.verdicts import CRASH, LIVENESS, UNKNOWN, ending
from jepsen_lite.workload import Checker, Options, Run
from kraftlab.checking.facts import Observation, Strike
from kraftlab.node.log_lines import JsonFormatter, TextFormatter

SECOND = 1_000_000_000


def seen(
    at_ns: int, node: int, epoch: int, leader: int, high_watermark: int, log_end: int = 99, is_up: bool = True
) -> Observation:
    return Observation(
        at_ns=at_ns, node=node, is_up=is_up, epoch=epoch, leader=leader, high_watermark=high_watermark, log_end=log_end
    )


def op(index: int, invoked_ns: int, ended_ns: int, outcome: str = "ok", **fields: object) -> Op:
    others = {"f": "set", "process": index, **fields}
    return Op(index=index, outcome=outcome, invoked_ns=invoked_ns, ended_ns=ended_ns, **others)  # type: ignore[arg-type]


def log(*entries: tuple[int, int, str], end: int = 0) -> CommittedLog:
    """Return a log of entries (offset, epoch, request), each in a batch of its own."""
    made = tuple(Entry(offset, offset + 1, epoch, 0, "Config", {}, request) for offset, epoch, request in entries)
    return CommittedLog(made, 0, end or (made[-1].offset + 1 if made else 0))


def run(
    *ops: Op, observations: tuple[Observation, ...] = (), strikes: tuple[Strike, ...] = (), healed_s: float = 0, **fields: object
) -> Run:
    return Run(
        options=Options(),
        history=History(ops),
        observations=observations,
        strikes=strikes,
        healed_ns=int(healed_s * SECOND),
        **fields,  # type: ignore[arg-type]
    )


KILL = Strike(kind="kill", begin_ns=15, end_ns=18, nodes=(1,))
PAUSE = Strike(kind="pause", begin_ns=15, end_ns=18, nodes=(1,))
AGREES = {
    "one leader": (seen(0, 1, 1, 1, 5), seen(0, 2, 1, 1, 3), seen(10, 1, 2, 2, 6), seen(10, 2, 2, 2, 6)),
    "a node that does not know the leader": (seen(0, 1, 1, 1, 5), seen(0, 2, 1, -1, 3)),
    "a node that was begun anew": (seen(10, 1, 2, 2, 9), seen(20, 1, 2, 2, 0)),
    "a node that had not stored its epoch": (seen(10, 1, 2, 2, 9), seen(20, 1, 1, -1, 0)),
}
DISAGREES: dict[str, tuple[tuple[Observation, ...], str]] = {
    "two leaders": ((seen(0, 1, 1, 1, 5), seen(5, 2, 1, 2, 3)), "two leaders"),
    "an epoch sinks": ((seen(20, 1, 2, 2, 9), seen(30, 1, 1, -1, 9)), "epoch back"),
    "a high watermark beyond the log": ((seen(10, 1, 2, 2, 9, log_end=8),), "beyond its log"),
    "a high watermark that the log never had": ((seen(10, 1, 2, 2, 50),), "committed and gone"),
}


@pytest.mark.parametrize("name", AGREES)
def test_nodes_agree(name: str) -> None:
    verdict = LogAgreement().check(run(observations=AGREES[name], strikes=(KILL,)))
    assert verdict.valid is True, verdict.reason


@pytest.mark.parametrize("name", DISAGREES)
def test_nodes_disagree(name: str) -> None:
    observations, kind = DISAGREES[name]
    written = log(*((offset, 1, "") for offset in range(10)))
    verdict = LogAgreement().check(run(op(0, 0, 100), observations=observations, strikes=(KILL,), log=written))
    assert verdict.valid is False
    assert list(verdict.details["violations"]) == [kind]


@pytest.mark.parametrize("kind", ["pause", "late", "move-dirs"])
def test_a_process_that_goes_on_after_a_strike_may_not_go_back(kind: str) -> None:
    series = (seen(10, 1, 2, 2, 9), seen(20, 1, 2, 2, 8))
    assert LogAgreement().check(run(observations=series, strikes=(KILL,))).valid is True
    verdict = LogAgreement().check(run(observations=series, strikes=(msgspec.structs.replace(PAUSE, kind=kind),)))
    assert verdict.reason == "the high watermark of node 1 went back from 9 to 8 while it ran"


def test_a_log_whose_epochs_sink_or_whose_offsets_repeat_is_none() -> None:
    assert "log epoch back" in LogAgreement().check(run(log=log((0, 2, ""), (1, 1, "")))).details["violations"]
    assert "order" in LogAgreement().check(run(log=log((1, 1, ""), (1, 1, "")))).details["violations"]


RETRY = [op(0, 0, 1, "info", request_id="a:1"), op(1, 2, 3, request_id="a:1", offset=1), op(2, 4, 5, request_id="a:1", offset=1)]


def test_a_request_that_was_sent_again_took_effect_once() -> None:
    verdict = ExactlyOnce("set").check(run(*RETRY, log=log((0, 1, "a:1"))))
    assert verdict.valid is True
    assert (verdict.details["sent_again"], verdict.details["answered_again"]) == (1, 1)


REQUESTS: dict[str, tuple[list[Op], CommittedLog, str]] = {
    "twice": (RETRY, log((0, 1, "a:1"), (1, 1, "a:1")), "duplicate"),
    "never": (RETRY, log((0, 1, "a:2")), "lost"),
    "though it failed": ([op(0, 0, 1, "fail", request_id="a:1")], log((0, 1, "a:1")), "failed but written"),
    "with two answers": (
        [RETRY[0], RETRY[1], op(2, 4, 5, request_id="a:1", offset=7)],
        log((0, 1, "a:1")),
        "two answers",
    ),
    "with two results": (
        [op(0, 0, 1, request_id="a:1", offset=1, result=5), op(1, 0, 1, request_id="a:1", offset=1, result=6)],
        log((0, 1, "a:1")),
        "two answers",
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_took_effect(name: str) -> None:
    ops, written, kind = REQUESTS[name]
    verdict = ExactlyOnce("set").check(run(*ops, log=written))
    assert verdict.valid is False
    assert list(verdict.details["violations"]) == [kind]
    assert verdict.lost == (kind == "lost")


def every(step_s: float, begin_s: float, end_s: float) -> list[tuple[int, int]]:
    count = int((end_s - begin_s) / step_s)
    return [
        (int((begin_s + step_s * number) * SECOND), int((begin_s + step_s * number + 0.01) * SECOND)) for number in range(count)
    ]


def timed(*spans: tuple[int, int], outcome: str = "ok") -> list[Op]:
    return [op(number, begun, ended, outcome) for number, (begun, ended) in enumerate(spans)]


def test_outages_are_measured_around_each_strike() -> None:
    ops = timed(*every(0.1, 0, 5), *every(0.1, 8, 20))
    strike = Strike(kind="kill", begin_ns=5 * SECOND, end_ns=7 * SECOND, nodes=(1,))
    verdict = Availability().check(run(*ops, strikes=(strike,), healed_s=7, ended_ns=20 * SECOND))
    assert verdict.valid is True
    kill = verdict.details["by_kind"]["kill"]
    assert kill["longest_outage_s"] == pytest.approx(3.1)
    assert kill["slowest_recovery_s"] == pytest.approx(1.01)
    assert kill["rate_before"] == pytest.approx(10, abs=1)
    assert kill["rate_during"] == 0
    assert kill["rate_after"] == pytest.approx(5, abs=1)
    assert verdict.details["longest_outage_s"] == pytest.approx(3.1)


def test_an_outage_that_was_over_before_a_strike_is_not_the_strikes() -> None:
    ops = timed((0, 8 * SECOND), *every(0.1, 8, 20))
    strike = Strike(kind="kill", begin_ns=int(8.005 * SECOND), end_ns=10 * SECOND, nodes=(1,))
    verdict = Availability().check(run(*ops, strikes=(strike,), healed_s=10, ended_ns=20 * SECOND))
    assert verdict.details["longest_outage_s"] == pytest.approx(8)
    assert verdict.details["by_kind"]["kill"]["longest_outage_s"] == pytest.approx(0.1, abs=0.02)


def test_operations_begun_before_the_healing_do_not_count_as_recovery() -> None:
    ops = timed((0, SECOND), (5 * SECOND, int(7.1 * SECOND)), (8 * SECOND, 9 * SECOND))
    verdict = Availability().check(run(*ops, healed_s=7, ended_ns=10 * SECOND))
    assert verdict.details["recovered_s"] == pytest.approx(2.0)


def test_a_cluster_that_does_not_come_back_is_not_available() -> None:
    ops = [*timed((0, SECOND)), op(1, 31 * SECOND, 33 * SECOND, "info")]
    verdict = Availability().check(run(*ops, healed_s=2, ended_ns=60 * SECOND))
    assert verdict.valid is False
    assert ending([verdict]) == LIVENESS
    assert "not within 58.0 s after the faults were healed" in verdict.reason
    late = timed((0, SECOND), (20 * SECOND, 21 * SECOND))
    assert "19.0 s after" in Availability().check(run(*late, healed_s=2, ended_ns=60 * SECOND)).reason


def test_a_run_that_ended_too_early_is_unknown() -> None:
    assert Availability().check(run(op(0, 0, SECOND), op(1, 3 * SECOND, 4 * SECOND, "info"), healed_s=2)).valid == UNKNOWN
    assert Availability().check(run(op(0, 0, SECOND), healed_s=2, ended_ns=90 * SECOND)).valid == UNKNOWN


def test_a_node_that_ended_by_itself_is_a_crash() -> None:
    verdict = NodeCrashes().check(run(op(0, 0, 1), node_exits={3: "loading\nInvariantViolation: two leaders\n"}))
    assert verdict.reason == "node 3 ended by itself: InvariantViolation: two leaders"
    assert ending([verdict]) == CRASH
    assert NodeCrashes().check(run(op(0, 0, 1))).valid is True


def test_complaints_in_logs_are_found(tmp_path: Path) -> None:
    (tmp_path / "broker-1.log").write_text("started\nbroker is ready\n")
    assert LogScan(tmp_path).check(run()).valid is True
    (tmp_path / "node-1.log").write_text(
        'ready\nTraceback (most recent call last):\n  File "x.py", line 1\n    boom()\nValueError: boom\nready again\n'
    )
    verdict = LogScan(tmp_path).check(run())
    assert verdict.valid is False
    assert verdict.reason == "node-1.log: line 5: ValueError: boom"


def boom() -> ValueError:
    try:
        raise ValueError("boom")
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("formatter", "complaint"), [(TextFormatter(), "line 6: ValueError: boom"), (JsonFormatter(1, "broker"), "line 2: {")]
)
def test_a_traceback_that_a_node_logged_is_one_complaint(tmp_path: Path, formatter: logging.Formatter, complaint: str) -> None:
    errors = (None, boom(), None)
    records = [
        logging.LogRecord("kraftlab", logging.ERROR, "", 0, "a line", None, error and (type(error), error, error.__traceback__))
        for error in errors
    ]
    (tmp_path / "node-1.log").write_text("".join(f"{formatter.format(record)}\n" for record in records))
    [found] = LogScan(tmp_path).check(run()).details["complaints"]["node-1.log"]
    assert found.startswith(complaint)


@pytest.mark.parametrize(
    "checker", [LogAgreement(), ExactlyOnce("set"), Availability(), NodeCrashes(), LogScan(Path("no-such-place"))]
)
def test_a_run_without_anything_proves_nothing(checker: Checker) -> None:
    assert checker.check(run()).valid == UNKNOWN
    assert checker.check(run(log=CommittedLog(()))).valid == UNKNOWN

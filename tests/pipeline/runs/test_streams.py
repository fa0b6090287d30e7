"""Decisions of a lake's stream without Spark: source, start, repetition, and end."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from kraftlab.metadata import records as r
from kraftlab.pipeline.errors import CorruptInput, WrongUse, fault_of_worker
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import stream as streams
from kraftlab.pipeline.runs.stream import FollowedLog, Unreachable, followed
from kraftlab.pipeline.sources.formats import FORMATS, KRAFTLAB
from kraftlab.pipeline.sources.streaming import LogMoved
from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.quorum.core import OffsetAndEpoch

BATCHES, QUARANTINE, GAPS = streams.TABLES
LIVE = FollowedLog("quorum://127.0.0.1:1", True, FORMATS[KRAFTLAB], "here")
DETAILS = {"format": KRAFTLAB, "cluster_id": "here", "controllers": "-1"}
SNAPSHOT = "00000000000000000050-0000000003.checkpoint"


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port at which nobody listens: it is taken, and was never listened at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def _batches(*rows: tuple[int, int, int, str]) -> pa.Table:
    """(base offset, last offset, epoch, segment)."""
    names = ("base_offset", "last_offset", "leader_epoch", "segment")
    cells = [dict(zip(names, row, strict=True)) | {"controller_id": -1, "format": KRAFTLAB} for row in rows]
    return pa.Table.from_pylist(cells, schema=arrow_schema(BATCHES))


def _commit(lake: Lake, lo: int, hi: int, *rows: tuple[int, int, int, str], details: dict[str, str] = DETAILS) -> None:
    with lake.writing():
        lake.commit_arrow(_batches(*rows), BATCHES, lo, hi, details=details)


def _follower(lake: Lake) -> Any:
    return streams._Follower(None, lake, LIVE, lambda step: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("quorum://", "names no quorum: no bootstrap server is named"),
        ("quorum://somewhere", "'somewhere' is not host:port"),
        ("quorum://127.0.0.1:0", "'127.0.0.1:0' is not host:port"),
        ("http://127.0.0.1:9092", "cannot be read"),
        ("/no/such/place", "does not exist"),
    ],
)
def test_a_place_that_is_none_is_refused_before_spark_starts(lake: Lake, place: str, reason: str) -> None:
    with pytest.raises(WrongUse, match=reason):
        followed(lake, place)
    assert not Path(lake.place()).exists()


def test_a_quorum_that_nobody_answers_for_is_unreachable(lake: Lake, free_port: int) -> None:
    with pytest.raises(Unreachable, match="connection refused"):
        followed(lake, f"quorum://127.0.0.1:{free_port}")


def test_the_log_of_another_cluster_than_the_lakes_is_refused(lake: Lake, own_log: Callable[..., Any]) -> None:
    log = own_log(cluster_id="there")
    log.segment([[r.NoOp(0)], [r.NoOp(0)]])
    _commit(lake, 0, 10, (0, 9, 1, "log"))
    with pytest.raises(CorruptInput, match="is of cluster there, not of here"):
        followed(lake, str(log.directory))


def test_a_kafka_lake_is_not_followed_by_ours(lake: Lake) -> None:
    _commit(lake, 0, 10, (0, 9, 1, "log"), details=DETAILS | {"format": "kafka"})
    with pytest.raises(CorruptInput, match="holds logs of format kafka"):
        followed(lake, LIVE.place)


def test_a_run_begins_after_the_last_record_that_bronze_has(lake: Lake) -> None:
    assert _follower(lake).position() == OffsetAndEpoch(0, 0)
    _commit(lake, 0, 10, (0, 4, 1, "log"), (5, 9, 2, "log"))
    assert _follower(lake).position() == OffsetAndEpoch(10, 2)
    _commit(lake, 10, 50, (49, 49, 1, SNAPSHOT))
    assert _follower(lake).position() == OffsetAndEpoch(50, 3)
    _commit(lake, 50, 60)
    assert _follower(lake).position() == OffsetAndEpoch(50, 3)


def test_a_range_that_was_killed_between_two_tables_is_finished_from_what_it_had_committed(lake: Lake) -> None:
    live = DETAILS | {streams.LIVE: "0"}
    _commit(lake, 0, 60, (49, 49, 1, SNAPSHOT), (50, 59, 3, "log"), details=live)
    follower = _follower(lake)
    for _ in range(2):
        follower.finish_torn_range()
        assert [(each.lo, each.hi) for table in streams.TABLES for each in lake.active(table)] == [(0, 60)] * 3
    (gap,) = lake.arrow(GAPS).to_pylist()
    assert (gap["controller_id"], gap["from_offset"], gap["to_offset"], gap["cause"]) == (-1, 0, 50, "compacted")
    assert [lake.latest(table) for table in streams.TABLES] == [1, 1, 1]


def test_a_batch_that_reaches_into_the_next_range_leaves_no_gap_there(lake: Lake) -> None:
    """`ingest --to 10` takes a batch whole that begins below."""
    _commit(lake, 0, 10, (0, 7, 1, "0.log"), (8, 11, 1, "0.log"))
    with lake.writing():
        for table in (QUARANTINE, GAPS):
            lake.commit_parts(table, 0, 10, ())
    follower = _follower(lake)
    assert follower.position() == OffsetAndEpoch(12, 1)
    _commit(lake, 10, 15, (12, 14, 1, "1.log"), details={**DETAILS, streams.LIVE: "0"})
    follower.finish_torn_range()
    assert lake.arrow(GAPS).to_pylist() == []


def test_a_torn_ingest_is_left_to_ingest_which_knows_what_was_damaged(lake: Lake) -> None:
    _commit(lake, 0, 10, (0, 9, 1, "log"))
    with pytest.raises(WrongUse, match="at offsets 0 to 9; the next step: kraftlab pipeline ingest"):
        _follower(lake).finish_torn_range()


class _Scripted:
    """A follower whose Spark streams end as scripted, after so many micro-batches."""

    source = LIVE

    def __init__(self, *ends: tuple[int, Exception | None]) -> None:
        self.ends, self.steps, self.mended = list(ends), 0, 0

    def finish_torn_range(self) -> None:
        self.mended += 1

    def catch_up(self) -> None:
        assert self.mended

    def wait(self, query: object) -> None:
        steps, error = self.ends.pop(0)
        self.steps += steps
        if error is not None:
            raise error


def _followed_to_its_end(follower: _Scripted, *, once: bool = False) -> list[str]:
    warnings: list[str] = []
    streams.follow(follower, lambda: None, once, 0.0, warnings.append)  # type: ignore[arg-type, return-value]
    return warnings


LOST = PySparkException("Python worker failed to connect back.\nmore")


def test_a_worker_that_spark_gave_up_does_not_end_a_stream() -> None:
    follower = _Scripted((2, LOST), (0, LOST), (1, LOST), (0, LogMoved("gone")), (0, None))
    warnings = _followed_to_its_end(follower)
    assert follower.mended == 5
    assert warnings[0] == "a micro-batch failed and is repeated: Python worker failed to connect back."
    assert warnings[-1] == "a micro-batch failed and is repeated: gone"


def test_what_fails_three_times_in_a_row_is_a_fault() -> None:
    follower = _Scripted((1, LOST), (0, LOST), (0, LOST), (0, None))
    with pytest.raises(PySparkException, match="connect back"):
        _followed_to_its_end(follower)
    assert len(follower.ends) == 1


def test_wrong_use_and_corrupt_input_are_not_tried_again() -> None:
    for error in (WrongUse("no"), CorruptInput("rot")):
        follower = _Scripted((3, error), (0, None))
        with pytest.raises(type(error)):
            _followed_to_its_end(follower)
        assert len(follower.ends) == 1


def test_a_quorum_that_went_away_is_waited_for_unless_only_what_is_there_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[FollowedLog] = []
    monkeypatch.setattr(streams, "wait_for", lambda source, pause_s: waited.append(source))
    gone = Unreachable("nobody answers")
    assert (
        _followed_to_its_end(_Scripted((0, gone), (1, gone), (0, gone), (0, gone), (0, None)))
        == ["nobody answers; waiting for it"] * 4
    )
    assert waited == [LIVE] * 4
    with pytest.raises(Unreachable):
        _followed_to_its_end(_Scripted((1, gone), (0, None)), once=True)


def test_what_a_source_raised_in_spark_is_the_fault_that_it_was() -> None:
    text = "java: Traceback\n  File x\n{}: the reason\n at java"
    for name, kind in (
        ("kraftlab.client.errors.ClusterUnreachable", Unreachable),
        ("kraftlab.pipeline.sources.streaming.LogMoved", LogMoved),
        ("kraftlab.pipeline.errors.CorruptInput", CorruptInput),
    ):
        fault = fault_of_worker(RuntimeError(text.format(name)), streams.FAULTS_OF_SOURCES)
        assert type(fault) is kind
        assert str(fault) == "the reason"
    unknown = RuntimeError("java.lang.OutOfMemoryError")
    assert fault_of_worker(unknown, streams.FAULTS_OF_SOURCES) is unknown

"""A lake that follows a running quorum holds what the quorum's log holds, whatever killed the one that followed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.metadata_log import observer_named
from kraftlab.common.uuids import to_text
from kraftlab.demo.lab import wait_until
from kraftlab.lab import LocalCluster
from kraftlab.metadata import records as r
from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.framing import Frame
from kraftlab.pipeline.lake import compaction
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.own_log.reader import read_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.cluster

ID = bytes(range(16))
RUN_DEADLINE_S = 240
CREATIONS = 6
"""Each is a batch of four records."""
SNAPSHOT_BYTES = "10000"
CLEANED_WITHIN_S = 60
SAME = ("silver.topics", "silver.partition_changes", "silver.brokers", "silver.configs")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Killed at the end: a node that stops waits for streams that a worker of Spark's still holds open."""
    with LocalCluster(tmp_path / "cluster", 1, 1, 1) as cluster:
        yield cluster
        cluster.kill()


def create(admin: AdminClient, *names: str) -> None:
    topics = [pb.CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    assert {answer.error_code for answer in admin.create_topics(topics).topics} == {0}


def run_to_the_end(writer: DataStreamWriter) -> None:
    """A stream of a program's own, which is started again where a busy machine keeps Spark's worker from starting within 10 s."""
    for _ in range(2):
        try:
            writer.start().awaitTermination()
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    writer.start().awaitTermination()


def rows_of(lake: Lake, table: str) -> list[Any]:
    return sorted(lake.arrow(table).to_pylist(), key=lambda row: (row["offset"], row["idx_in_batch"]))


@pytest.mark.nightly
def test_rows_off_a_quorum_are_those_of_its_log(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    from kraftlab.pipeline.sources import register

    register(spark)
    (controller,) = cluster.controller_ids
    with AdminClient(str(cluster.node(controller).grpc)) as admin:
        for number in range(CREATIONS):
            create(admin, f"clicks-{number}")
    source = spark.readStream.format("kraftlab-log").option("maxRecords", "15").load(f"quorum://{cluster.node(controller).grpc}")
    seen: list[Any] = []

    def take(rows: DataFrame, batch_id: int) -> None:
        found = rows.select("base_offset", "last_offset", "leader_epoch", "crc", "payload", "controller_id").collect()
        seen.extend((batch_id, *row) for row in found)

    query = source.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_the_end(query.trigger(availableNow=True))
    cluster.stop_node(controller)
    (segment,) = Path(cluster.metadata_dir(controller)).glob("*/*.log")
    frames = read_frames(lambda at, size: segment.read_bytes()[at : at + size], segment.stat().st_size, is_snapshot=False)
    kept = [frame for frame in frames if isinstance(frame, Frame)]
    assert len(seen) >= CREATIONS
    assert [row[1:6] for row in seen] == [
        (frame.base_offset, frame.last_offset, frame.leader_epoch, frame.crc, frame.data) for frame in kept[: len(seen)]
    ]
    assert [row[0] for row in seen] == sorted(row[0] for row in seen)
    assert len({row[0] for row in seen}) > 1
    assert {row[6] for row in seen} == {-1}


@pytest.mark.nightly
def test_a_follower_that_was_killed_goes_on_without_a_row_lost_or_twice(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest
    from kraftlab.pipeline.runs.stream import followed, stream

    (controller,) = cluster.controller_ids
    place = f"quorum://{cluster.node(controller).grpc}"
    lake, taken = Lake(str(tmp_path / "followed")), Lake(str(tmp_path / "taken"))
    command = [sys.executable, "-m", "kraftlab.cli.main", "pipeline", "stream", place, "--lake", lake.place()]
    with AdminClient(str(cluster.node(controller).grpc)) as admin:
        create(admin, "before")
        process = subprocess.Popen([*command, "--trigger", "500ms"], start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            wait_until("a micro-batch is in bronze", lambda: bool(lake.active("bronze.batches")), timeout_s=RUN_DEADLINE_S)
            create(admin, "meanwhile")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        create(admin, "after")
        assert stream(spark, lake, followed(lake, place), once=True) > 0
        observers = {each.replica_directory_id for each in admin.describe_quorum().observers}
    end = lake.active("silver.topics")[-1].hi
    assert {row["name"] for row in rows_of(lake, "silver.topics")} == {"before", "meanwhile", "after"}
    assert to_text(observer_named(f"pipeline of {lake.uri}").directory_id) in observers
    cluster.stop_node(controller)
    ingest(spark, taken, [str(cluster.metadata_dir(controller))], hi=end)
    build(spark, taken)
    for table in SAME:
        assert rows_of(lake, table) == rows_of(taken, table)
    assert lake.arrow("bronze.offset_gaps").num_rows == 0
    assert [each["end_offset"] for each in lake.arrow("gold.leader_epochs").to_pylist()] != []


@pytest.mark.nightly
def test_a_quorum_that_goes_away_and_comes_back_is_followed_on(cluster: LocalCluster, tmp_path: Path) -> None:
    (controller,) = cluster.controller_ids
    node = cluster.node(controller)
    lake = Lake(str(tmp_path / "lake"))
    said = tmp_path / "stderr"
    place = f"quorum://{node.grpc},{cluster.node(cluster.broker_ids[0]).grpc}"
    command = [sys.executable, "-m", "kraftlab.cli.main", "pipeline", "stream", place, "--lake", lake.place()]

    def has(name: str) -> bool:
        return name in lake.arrow("silver.topics", ["name"]).column("name").to_pylist()

    with AdminClient(str(node.grpc)) as admin, said.open("wb") as stderr:
        create(admin, "before")
        process = subprocess.Popen([*command, "--trigger", "500ms"], start_new_session=True, stderr=stderr)
        try:
            wait_until("the first topic is in silver", lambda: has("before"), timeout_s=RUN_DEADLINE_S)
            cluster.stop_node(controller)
            wait_until("the outage is told", lambda: b"waiting for it" in said.read_bytes(), timeout_s=RUN_DEADLINE_S)
            cluster.start_node(controller)
            create(admin, "after")
            wait_until("the second topic is in silver", lambda: has("after"), timeout_s=RUN_DEADLINE_S)
            process.send_signal(signal.SIGINT)
            assert process.wait(RUN_DEADLINE_S) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert b"Traceback" not in said.read_bytes()
    assert lake.arrow("bronze.offset_gaps").num_rows == 0
    offsets = lake.arrow("bronze.batches", ["base_offset"]).column("base_offset").to_pylist()
    assert len(offsets) == len(set(offsets))


@pytest.mark.nightly
def test_a_log_that_was_cleaned_below_what_was_read_is_followed_by_its_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    from kraftlab.pipeline.runs.stream import followed, stream

    lake = Lake(str(tmp_path / "lake"))
    overrides = {"metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_BYTES}
    with LocalCluster(tmp_path / "cluster", 1, 1, 1, overrides=overrides) as cluster:
        (controller,) = cluster.controller_ids
        source = followed(lake, f"quorum://{cluster.node(controller).grpc}")
        with AdminClient(str(cluster.node(controller).grpc)) as admin:
            create(admin, "before", "doomed")
            assert stream(spark, lake, source, once=True) > 0
            read = lake.active("bronze.batches")[-1].hi
            admin.delete_topics(["doomed"])
            created = ["before"]

            def is_cleaned() -> bool:
                created.append(f"meanwhile-{len(created)}")
                create(admin, created[-1])
                return bool(admin.describe_quorum().log_start_offset > read)

            wait_until("the log begins behind what was read", is_cleaned, timeout_s=CLEANED_WITHIN_S)
            start = admin.describe_quorum().log_start_offset
            assert stream(spark, lake, source, once=True) > 0
    (gap,) = lake.arrow("bronze.offset_gaps", ["from_offset", "to_offset", "cause"]).to_pylist()
    assert (gap["from_offset"], gap["cause"]) == (read, "compacted")
    assert gap["to_offset"] >= start
    states = lake.arrow("silver.partition_state", ["topic", "partition"]).to_pylist()
    assert sorted({row["topic"] for row in states}) == sorted(created)


@pytest.mark.nightly
def test_a_log_in_files_is_followed_as_it_grows_with_what_is_damaged_in_it(
    spark: SparkSession, own_log: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest
    from kraftlab.pipeline.runs.stream import Step, followed, stream

    monkeypatch.setattr(compaction, "FAN_IN", 2)
    log = own_log()
    lake, taken = Lake(str(tmp_path / "followed")), Lake(str(tmp_path / "taken"))
    first = log.segment([[r.Topic(0, "orders", ID)], *[[r.PartitionChange(0, 0, ID, isr=(1, 2))] * 5 for _ in range(4)]], zeros=0)
    source = followed(lake, str(log.directory))
    steps: list[Step] = []
    assert stream(spark, lake, source, once=True, max_records=11, on_step=steps.append) == len(steps) > 1
    assert steps[-1].hi == 16
    damaged = bytearray(first.read_bytes())
    body = b"".join(log.batch([r.PartitionChange(0, 0, ID, isr=(1,))]) for _ in range(4))
    damaged += body
    damaged[-len(body) // 2 - 1] ^= 1
    first.write_bytes(damaged)
    assert stream(spark, lake, source, once=True, on_step=steps.append) == 1
    assert [(step.lo, step.hi) for step in steps[1:]] == [(a.hi, b.hi) for a, b in pairwise(steps)]
    assert [(each.lo, each.hi) for each in lake.active("silver.topics")] == [(0, 16), (16, 24)], "two of three were put together"
    ingest(spark, taken, [str(log.directory)])
    build(spark, taken)
    for table in ("silver.topics", "silver.partition_changes"):
        assert rows_of(lake, table) == rows_of(taken, table)
    for table in ("bronze.offset_gaps", "bronze.quarantine"):
        assert lake.arrow(table).to_pylist() == taken.arrow(table).to_pylist() != []


def test_a_quorum_cannot_be_read_once(spark: SparkSession) -> None:
    from kraftlab.pipeline.sources import register

    register(spark)
    with pytest.raises(Exception, match="is read as a stream") as raised:
        spark.read.format("kraftlab-log").load("quorum://127.0.0.1:1").count()
    assert WrongUse.__name__ in str(raised.value)

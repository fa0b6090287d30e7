"""A lake that follows a running quorum holds what the quorum's log holds, whatever killed the one that followed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.metadata_log import observer_named
from kraftlab.cluster import LocalCluster
from kraftlab.demo.lab import wait_until
from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.lake.commits import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_DEADLINE_S = 240
CREATIONS = 6
"""Each is a batch of four records."""
SAME = ("silver.topics", "silver.partition_changes", "silver.brokers", "silver.configs")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", 1, 1, 1) as cluster:
        yield cluster


def create(admin: AdminClient, *names: str) -> None:
    topics = [pb.CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    assert {answer.error_code for answer in admin.create_topics(topics).topics} == {0}


def rows_of(lake: Lake, table: str) -> list[Any]:
    return sorted(lake.arrow(table).to_pylist(), key=lambda row: (row["offset"], row["idx_in_batch"]))


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
    query.trigger(availableNow=True).start().awaitTermination()
    cluster.stop_node(controller)
    directory = str(cluster.metadata_dir(controller))
    log = spark.read.format("kraftlab-log").option("committed", "false").option("snapshots", "false").load(directory)
    kept = log.select("base_offset", "last_offset", "leader_epoch", "crc", "payload").orderBy("base_offset").collect()
    assert len(seen) >= CREATIONS
    assert [row[1:6] for row in seen] == [tuple(row) for row in kept[: len(seen)]]
    assert [row[0] for row in seen] == sorted(row[0] for row in seen)
    assert len({row[0] for row in seen}) > 1
    assert {row[6] for row in seen} == {-1}


@pytest.mark.nightly
def test_a_follower_that_was_killed_goes_on_without_a_row_lost_or_twice(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest
    from kraftlab.pipeline.runs.stream import stream

    (controller,) = cluster.controller_ids
    place = f"quorum://{cluster.node(controller).grpc}"
    followed, taken = Lake(str(tmp_path / "followed")), Lake(str(tmp_path / "taken"))
    command = [sys.executable, "-m", "kraftlab.cli.main", "pipeline", "stream", place, "--lake", followed.place()]
    with AdminClient(str(cluster.node(controller).grpc)) as admin:
        create(admin, "before")
        process = subprocess.Popen([*command, "--trigger", "500ms"], start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            wait_until("a micro-batch is in bronze", lambda: bool(followed.active("bronze.batches")), timeout_s=RUN_DEADLINE_S)
            create(admin, "meanwhile")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        create(admin, "after")
        assert stream(spark, followed, place, once=True) > 0
        observers = {each.replica_id for each in admin.describe_quorum().observers}
    end = followed.active("silver.topics")[-1].hi
    assert {row["name"] for row in rows_of(followed, "silver.topics")} == {"before", "meanwhile", "after"}
    assert observer_named(f"pipeline of {followed.uri}").node_id in observers
    cluster.stop_node(controller)
    ingest(spark, taken, [str(cluster.metadata_dir(controller))], hi=end)
    build(spark, taken)
    for table in SAME:
        assert rows_of(followed, table) == rows_of(taken, table)
    assert followed.arrow("bronze.offset_gaps").num_rows == 0
    assert [each["end_offset"] for each in followed.arrow("gold.leader_epochs").to_pylist()] != []


def test_a_quorum_is_no_place_to_read_once(spark: SparkSession) -> None:
    from kraftlab.pipeline.sources import register

    register(spark)
    with pytest.raises(Exception, match="is read as a stream") as raised:
        spark.read.format("kraftlab-log").load("quorum://127.0.0.1:1").count()
    assert WrongUse.__name__ in str(raised.value)

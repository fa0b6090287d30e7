"""Damaged topic ids and unmounted disks, on real processes: nothing empty leads in the place of acknowledged records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kraftlab.demo.lab import wait_until
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

from .conftest import OVERRIDES, Workbench, scratch_directory

pytestmark = pytest.mark.cluster

RECORDS = 20


def produce(lab: Workbench) -> int:
    return lab.data.produce("t", 0, build_batch([Record(b"k", b"v", int(time.time() * 1000))])).base_offset


def place_of_t(cluster: LocalCluster, broker_id: int) -> Path:
    [place] = [path / "t-0" for path in cluster.log_dirs(broker_id) if (path / "t-0").is_dir()]
    return place


def is_led(lab: Workbench) -> bool:
    return lab.partitions()["t", 0].leader_id is not None


def test_acknowledged_records_outlive_damaged_topic_ids_and_unmounted_disks(kraftlab_here: Any) -> None:
    with scratch_directory("damaged") as directory:
        cluster = LocalCluster(directory, 1, 3, 2, overrides=OVERRIDES)
        with cluster:
            lab = Workbench(cluster)
            try:
                places = before_and_after_a_promotion(cluster, lab, kraftlab_here)
            finally:
                lab.close()
        away = directory / "away"
        away.mkdir()
        unmounted = [places[0].parent, *cluster.log_dirs(2)]
        for number, path in enumerate(unmounted):
            path.rename(away / str(number))
            path.mkdir()
        identity = places[1].parent / "meta.properties"
        intact = identity.read_bytes()
        identity.write_bytes(b"")
        with LocalCluster(directory) as cluster:
            lab = Workbench(cluster)
            try:
                assert cluster.pid(2) is None
                assert [line.partition(":")[0] for line in cluster.disk_faults] == [
                    "broker-0 starts without a directory",
                    "broker-1 starts without a directory",
                    *["broker-2 does not start"] * 2,
                ]
                wait_until("the partition has no leader", lambda: not is_led(lab))
            finally:
                lab.close()
        assert not any(list(path.iterdir()) for path in unmounted), "nothing is made where a disk belongs"
        identity.write_bytes(intact)
        for number, path in enumerate(unmounted):
            path.rmdir()
            (away / str(number)).rename(path)
        with LocalCluster(directory) as cluster:
            assert cluster.disk_faults == []
            lab = Workbench(cluster)
            try:
                wait_until("the partition is led again", lambda: is_led(lab))
                assert produce(lab) == RECORDS + 1
            finally:
                lab.close()


def before_and_after_a_promotion(cluster: LocalCluster, lab: Workbench, kraftlab_here: Any) -> list[Path]:
    """Damage the topic ids of all replicas; return their directories."""
    lab.create_topic("t", [0, 1, 2], configs={"min.insync.replicas": "2"})
    assert [produce(lab) for _ in range(RECORDS)] == list(range(RECORDS))
    places = [place_of_t(cluster, broker_id) for broker_id in cluster.broker_ids]
    for broker_id in cluster.broker_ids:
        cluster.kill_node(broker_id)
    files = [place / "partition.metadata" for place in places]
    files[0].write_bytes(b"")
    files[1].write_bytes(bytes(files[1].stat().st_size))
    files[2].unlink()
    cluster.start()
    cluster.wait_ready()
    wait_until("the partition has no leader", lambda: not is_led(lab))
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    code, said = kraftlab_here("log-dirs", "--describe", *at, "--format", "table")
    assert code == 0 and said.count("has a copy of t-0") == 3 and "partition.metadata" in said and "lost" not in said
    why = f"whose log end offset {RECORDS} is the highest"
    next_step = f"promote the copy on broker 0, {why}: kraftlab log-dirs --promote t-0 --broker 0"
    assert "1 in doubt" in said and next_step in said
    assert cluster.in_doubt() == (f"t-0 has no leader, because all its replicas are in doubt: {next_step}",)
    for broker_id in cluster.broker_ids:
        code, said = kraftlab_here("log-dirs", "--promote", "t-0", "--broker", str(broker_id), "--force", *at)
        assert code == 0, said
    wait_until("the partition is led and in sync", lambda: is_led(lab) and lab.replicas_are_equal("t"))
    assert produce(lab) == RECORDS
    assert [place_of_t(cluster, broker_id) for broker_id in cluster.broker_ids] == places
    return places


@pytest.mark.nightly
def test_a_killed_leader_without_its_topic_id_is_filled_again_and_keeps_its_old_copy(kraftlab_here: Any) -> None:
    with scratch_directory("damaged-leader") as directory, LocalCluster(directory, 1, 3, 1, overrides=OVERRIDES) as cluster:
        lab = Workbench(cluster)
        try:
            lab.create_topic("t", [0, 1, 2], configs={"min.insync.replicas": "2"})
            assert [produce(lab) for _ in range(RECORDS)] == list(range(RECORDS))
            place = place_of_t(cluster, 0)
            cluster.kill_node(0)
            (place / "partition.metadata").write_bytes(b"")
            wait_until("another broker leads", lambda: lab.partitions()["t", 0].leader_id not in (None, 0))
            assert produce(lab) == RECORDS
            cluster.start_node(0)
            wait_until("all replicas are in sync", lambda: len(lab.partitions()["t", 0].isr_nodes) == 3)
            wait_until("all replicas have all records", lambda: lab.replicas_are_equal("t"))
            assert produce(lab) == RECORDS + 1
            [stray] = place.parent.glob("t-0.*-stray")
            old = f"offsets up to {RECORDS}; set aside"
            code, said = kraftlab_here(
                "log-dirs", "--describe", "--bootstrap-server", cluster.bootstrap_servers, "--format", "table"
            )
            assert code == 0 and old in said and str(stray) in said
            assert f"with offsets up to {RECORDS}; its files are kept in {stray}" in cluster.log_path(0).read_text()
        finally:
            lab.close()


def test_a_damaged_topic_id_of_a_leader_beside_a_damaged_follower_costs_no_file(kraftlab_here: Any) -> None:
    """Keep the longer log, also if the shorter one leads, and name its place and its end."""
    with scratch_directory("damaged-pair") as directory, LocalCluster(directory, 1, 2, 1, overrides=OVERRIDES) as cluster:
        lab = Workbench(cluster)
        try:
            lab.create_topic("t", [0, 1], configs={"min.insync.replicas": "2"})
            assert [produce(lab) for _ in range(RECORDS)] == list(range(RECORDS))
            places = [place_of_t(cluster, broker_id) for broker_id in cluster.broker_ids]
            for broker_id in cluster.broker_ids:
                cluster.kill_node(broker_id)
            segment = places[0] / f"{0:020d}.log"
            records = segment.read_bytes()
            (places[0] / "partition.metadata").write_bytes(b"")
            damaged = places[1] / segment.name
            damaged.write_bytes(records[: len(records) // 2])
            cluster.start()
            cluster.wait_ready()

            def copies() -> list[tuple[str, int | None]]:
                found = [copy for each in lab.admin.describe_log_dirs(0) for copy in each.kept_copies]
                return [(copy.path, copy.log_end_offset) for copy in found]

            wait_until("the copy is named", lambda: len(copies()) == 1)
            assert copies()[0][1] == RECORDS
            code, said = kraftlab_here(
                "log-dirs", "--describe", "--bootstrap-server", cluster.bootstrap_servers, "--format", "table"
            )
            assert code == 0 and f"offsets up to {RECORDS}; " in said
            [kept] = [file for file in places[0].parent.glob(f"t-0*/{segment.name}") if file.read_bytes() == records]
            assert str(kept.parent) in said
        finally:
            lab.close()

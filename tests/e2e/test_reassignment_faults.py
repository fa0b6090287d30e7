"""Reassignments and faults: they complete over a failover, cancel exactly, and end with their topic."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import pytest

from kraftlab.cli.partitions.segments import PartitionFiles, import_partition
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.demo.lab import wait_until
from kraftlab.records.record_batch import Record, build_batch


def test_a_throttled_reassignment_completes_over_a_failover(lab: Any) -> None:
    lab.create_topic("carried-on", [0, 1])
    lab.fill("carried-on", 200_000)
    content = lab.contents("carried-on")[0][0]
    lab.throttle("carried-on", 20_000)
    lab.reassign({("carried-on", 0): [2, 0]})
    wait_until("bytes arrive", lambda: lab.bytes_arrived("carried-on", 2) > 0)
    lab.cluster.kill_node(lab.active)
    assert ("carried-on", 0) in lab.reassigning()
    lab.throttle("carried-on", None)
    wait_until("the reassignment completes", lambda: ("carried-on", 0) not in lab.reassigning())
    placed = lab.partitions()["carried-on", 0]
    assert list(placed.replica_nodes) == [2, 0]
    assert sorted(placed.isr_nodes) == [0, 2]
    wait_until("the old replica goes", lambda: lab.contents("carried-on") == {0: {0: content, 2: content}})


def test_a_cancel_after_a_failover_leaves_everything_as_it_was(lab: Any) -> None:
    lab.create_topic("taken-back", [0, 1], [1, 0])
    for partition in (0, 1):
        lab.fill("taken-back", 200_000, partition=partition)
    before = lab.state_of("taken-back")
    lab.throttle("taken-back", 20_000)
    lab.reassign({("taken-back", 0): [2], ("taken-back", 1): [2, 1]})
    wait_until("bytes arrive", lambda: lab.bytes_arrived("taken-back", 2) > 0)
    lab.cluster.kill_node(lab.active)
    lab.reassign({("taken-back", 0): None, ("taken-back", 1): None})
    lab.throttle("taken-back", None)
    assert "taken-back" not in {topic for topic, _ in lab.reassigning()}
    wait_until("nothing is left of it", lambda: lab.state_of("taken-back") == before)
    assert not lab.strays()


def test_a_topic_deleted_in_the_middle_of_its_reassignment_leaves_nothing(lab: Any) -> None:
    lab.create_topic("cut-short", [0, 1])
    lab.fill("cut-short", 300_000)
    lab.throttle("cut-short", 20_000)
    lab.reassign({("cut-short", 0): [2, 1]})
    wait_until("bytes arrive", lambda: lab.bytes_arrived("cut-short", 2) > 0)
    lab.admin.delete_topics(["cut-short"])
    assert ("cut-short", 0) not in lab.reassigning()
    with pytest.raises(ApiError) as refused:
        lab.reassign({("cut-short", 0): [2, 1]})
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until("its directories go", lambda: not directories_of(lab, "cut-short"))

    lab.create_topic("cut-short", [2, 0])
    lab.throttle("cut-short", None)
    lab.fill("cut-short", 20_000)
    wait_until("its successor starts empty", lambda: lab.replicas_are_equal("cut-short"))
    assert lab.contents("cut-short")[0][2].records == 20


def test_a_log_dir_move_cut_by_a_kill_leaves_one_current_directory_and_all_data(lab: Any) -> None:
    lab.set_broker_configs({"replica.alter.log.dirs.io.max.bytes.per.second": "50000"})
    lab.create_topic("moving", [0, 1])  # what brokers host it by comes after the limit in their metadata
    lab.fill("moving", 400_000)
    content = lab.contents("moving")[0][1]
    (source,) = [row.log_dir for row in lab.replicas_on_disk()["moving", 0] if row.broker == 0]
    (target,) = [str(path) for path in lab.cluster.log_dirs(0) if str(path) != source]
    lab.admin.alter_replica_log_dirs(0, {("moving", 0): target})
    wait_until("bytes are copied", lambda: bytes_copied(lab) > 0)
    lab.cluster.kill_node(0)
    lab.set_broker_configs({"replica.alter.log.dirs.io.max.bytes.per.second": None})
    lab.cluster.start_node(0)
    lab.cluster.wait_ready()

    def settled() -> bool:
        rows = [row for row in lab.replicas_on_disk()["moving", 0] if row.broker == 0]
        return [row.is_future for row in rows] == [False] and len(directories_of(lab, "moving", broker=0)) == 1

    wait_until("one current directory is left", settled)
    (row,) = [row for row in lab.replicas_on_disk()["moving", 0] if row.broker == 0]
    assert row.log_dir in (source, target)
    wait_until("replicas are equal", lambda: lab.replicas_are_equal("moving"))
    assert lab.contents("moving")[0][0] == content


@pytest.mark.parametrize("replicas", [[0, 1], [0]], ids=["replicated", "single"])
def test_an_import_goes_on_over_a_kill_of_the_leader_and_leaves_no_gap(
    lab: Any, scratch: pathlib.Path, replicas: list[int]
) -> None:
    topic = f"imported-{len(replicas)}"
    file = scratch / "00000000000000000000.log"
    recorded = record_segment(file, batches=120)
    lab.create_topic(topic, replicas)
    sent: list[int] = []
    killed = threading.Event()

    def kill_the_leader_half_way(size_bytes: int) -> None:
        sent.append(size_bytes)
        if sum(sent) * 2 >= len(recorded) and not killed.is_set():
            killed.set()
            lab.cluster.kill_node(0)
            lab.cluster.start_node(0)

    imported = import_partition(lab.data, PartitionFiles(topic, 0, (file,), len(recorded)), kill_the_leader_half_way)
    assert (imported.records, imported.size_bytes) == (1200, len(recorded))
    wait_until("replicas become equal", lambda: lab.replicas_are_equal(topic))
    held = lab.contents(topic)[0]
    assert {(content.records, content.size_bytes) for content in held.values()} == {(1200, len(recorded))}


def record_segment(path: pathlib.Path, *, batches: int) -> bytes:
    """A segment file of batches of ten records, some 50 kB each."""
    data = b"".join(
        build_batch([Record(b"%d" % number, bytes([number % 256]) * 5000, 1_700_000_000_000)] * 10, base_offset=number * 10)
        for number in range(batches)
    )
    path.write_bytes(data)
    return data


def directories_of(lab: Any, topic: str, *, broker: int | None = None) -> list[pathlib.Path]:
    """Every directory of a topic's replicas on the disks, whatever its suffix."""
    brokers = lab.cluster.broker_ids if broker is None else [broker]
    return [entry for node_id in brokers for path in lab.cluster.log_dirs(node_id) for entry in path.glob(f"{topic}-*")]


def bytes_copied(lab: Any) -> int:
    return sum(row.size_bytes for row in lab.replicas_on_disk()["moving", 0] if row.is_future)

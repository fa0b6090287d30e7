"""Damaged metadata logs: a torn tail is truncated, damage in committed records stops the node."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.demo.lab import wait_until
from kraftlab.quorum.core.batch import HEADER_BYTES, BatchHeader
from kraftlab.quorum.storage.recovery import scan
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES

KEY = "leader.replication.throttled.rate"
WRITES = 3


@contextmanager
def serving(node_files: Any) -> Iterator[AdminClient]:
    """A controller that runs and leads; killed afterwards."""
    process = node_files.start("controller")
    node_files.wait_until_serving("controller")
    with AdminClient(str(node_files.node("controller").grpc), timeout_ms=5000) as admin:
        wait_until("it leads", lambda: admin.describe_cluster().leader_id is not None)
        yield admin
    process.kill()
    process.communicate()
    node_files.started.remove(process)


@pytest.fixture
def segment(node_files: Any) -> pathlib.Path:
    """The only segment of a controller that made three writes, was idle for a moment, and was killed."""
    node_files.change("controller", metadata_max_idle_interval_ms="50")
    with serving(node_files) as admin:
        for value in range(1, WRITES + 1):
            change = pb.AlterableConfig(name=KEY, config_operation=0, value=str(value))
            resource = pb.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
            admin.incremental_alter_configs([resource])
        before = admin.describe_quorum().high_watermark
        wait_until("it is idle", lambda: admin.describe_quorum().high_watermark >= before + 2)
    (found,) = (node_files.home("controller") / "metadata").glob("*/*.log")
    return found


def batches(segment: pathlib.Path) -> list[tuple[int, BatchHeader]]:
    """(position in the file, header) of every batch."""
    found, position = [], HEADER_PAGE_BYTES
    for header in scan(segment.read_bytes(), HEADER_PAGE_BYTES):
        found.append((position, header))
        position += header.size_bytes
    return found


def flip_bit(path: pathlib.Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def cut_last_batch(segment: pathlib.Path) -> None:
    position, header = batches(segment)[-1]
    with segment.open("r+b") as file:
        file.truncate(position + header.size_bytes // 2)


def test_a_torn_tail_is_cut_and_everything_before_it_is_there(node_files: Any, segment: pathlib.Path) -> None:
    cut_last_batch(segment)
    with serving(node_files) as admin:
        [configs] = admin.describe_configs([(4, "")]).values()
        assert {entry.name: entry.value for entry in configs}[KEY] == str(WRITES)


def test_damage_in_committed_records_stops_the_node_and_changes_nothing(node_files: Any, segment: pathlib.Path) -> None:
    position, header = batches(segment)[2]
    flip_bit(segment, position + HEADER_BYTES)
    before = contents(segment.parent.parent)
    code, said = node_files.run("controller")
    assert code == 1
    told = (str(segment), f"position {position}", f"damaged at offset {header.base_offset}", "which was committed")
    assert all(text in said for text in (*told, "Nothing was changed", "kraftlab storage format")), said
    assert contents(segment.parent.parent) == before


def contents(directory: pathlib.Path) -> dict[str, bytes]:
    """Return every file below a directory except the lock."""
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_voter_that_lost_half_of_its_log_gets_it_from_the_others(lab: Any) -> None:
    lab.create_topic("remembered", [0, 1], configs={"retention.ms": "123000"})
    active = lab.active
    victim = next(node_id for node_id in lab.cluster.controller_ids if node_id != active)
    lab.cluster.kill_node(victim)
    (segment,) = lab.cluster.metadata_dir(victim).glob("*/*.log")
    position, _ = batches(segment)[len(batches(segment)) // 2]
    with segment.open("r+b") as file:
        file.truncate(position + 10)
    lab.cluster.start_node(victim)
    lab.cluster.wait_ready()
    assert lab.metadata_is_equal_everywhere()
    assert lab.topic_configs("remembered") == {"retention.ms": "123000"}

"""Nodes that cannot start: exit code 1 and one line that names the thing and the next step."""

from __future__ import annotations

import pathlib
import socket
from typing import Any

import pytest

from kraftlab.common.uuids import random_uuid
from kraftlab.config import meta_properties
from kraftlab.lab import cluster_plan


def test_a_configuration_that_is_wrong_is_refused_by_file_key_and_value(node_files: Any) -> None:
    node_files.change("broker", num_partition="3")
    code, said = node_files.run("broker")
    assert code == 1
    assert str(node_files.config("broker")) in said
    assert "num.partition, an unknown key; did you mean num.partitions?" in said


@pytest.mark.parametrize(("role", "door"), [("controller", "peer"), pytest.param("broker", "grpc", marks=pytest.mark.nightly)])
def test_a_port_in_use_is_named(node_files: Any, role: str, door: str) -> None:
    node = node_files.node(role)
    port = node.peer_port if door == "peer" else node.grpc_port
    with socket.create_server((cluster_plan.HOST, port)):
        code, said = node_files.run(role)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "is another process using the port?" in said


@pytest.mark.parametrize(
    ("role", "fault"),
    [("broker", "unformatted"), pytest.param("controller", "another cluster", marks=pytest.mark.nightly)],
)
def test_a_metadata_directory_that_is_not_the_nodes_is_refused(node_files: Any, role: str, fault: str) -> None:
    directory = node_files.home(role) / "metadata"
    if fault == "unformatted":
        (directory / meta_properties.FILE_NAME).unlink()
    else:
        node_files.run_once(role)
        give_to_another_cluster(directory)
    code, said = node_files.run(role)
    assert code == 1
    assert str(node_files.home(role)) in said
    assert ("kraftlab storage format" if fault == "unformatted" else "another-cluster") in said


def test_a_broker_of_another_cluster_is_turned_away(node_files: Any) -> None:
    node_files.start("controller")
    node_files.wait_until_serving("controller")
    for name in ("metadata", "d0", "d1"):
        give_to_another_cluster(node_files.home("broker") / name)
    code, said = node_files.run("broker")
    assert code == 1
    assert "another-cluster" in said
    assert node_files.plan.cluster_id not in said, "a stranger is not told the cluster id"


def test_two_nodes_on_one_directory_are_refused(node_files: Any) -> None:
    node_files.start("controller")
    node_files.wait_until_serving("controller")
    ports = cluster_plan.free_ports(2)
    peer, grpc = next(ports), next(ports)
    node_files.change(
        "controller",
        listeners=f"CONTROLLER://127.0.0.1:{peer},GRPC://127.0.0.1:{grpc}",
        controller_quorum_bootstrap_servers=f"127.0.0.1:{peer}",
    )
    code, said = node_files.run("controller")
    assert code == 1
    assert str(node_files.home("controller") / "metadata") in said


def give_to_another_cluster(directory: pathlib.Path) -> None:
    mine = meta_properties.read(directory)
    assert mine is not None
    meta_properties.write(directory, meta_properties.MetaProperties("another-cluster", mine.node_id, random_uuid()))

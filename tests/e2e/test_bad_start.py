"""Nodes that cannot start: exit code 1 and one line that names the thing and the next step."""

from __future__ import annotations

import pathlib
import shutil
import socket
from typing import Any

import pytest

from kraftlab.config import meta_properties
from kraftlab.lab import layout
from kraftlab.metadata.uuids import random_uuid

WRONG_KEYS: dict[str, tuple[str, dict[str, str | None], tuple[str, ...]]] = {
    "unknown key": ("broker", {"num_partition": "3"}, ("num.partition=3", "did you mean num.partitions?")),
    "another one's directory": ("controller", {"node_id": "3009"}, ("was formatted for node 3000", "is of node 3009")),
}


@pytest.mark.parametrize("name", WRONG_KEYS)
def test_a_configuration_that_is_wrong_is_refused_by_file_key_and_value(node_files: Any, name: str) -> None:
    role, changes, told = WRONG_KEYS[name]
    node_files.change(role, **changes)
    code, said = node_files.run(role)
    assert code == 1
    assert str(node_files.config(role)) in said
    assert all(text in said for text in told), said


@pytest.mark.parametrize(("role", "door"), [("controller", "peer"), ("broker", "grpc")])
def test_a_port_in_use_is_named(node_files: Any, role: str, door: str) -> None:
    node = node_files.node(role)
    port = node.peer_port if door == "peer" else node.grpc_port
    with socket.create_server((layout.HOST, port)):
        code, said = node_files.run(role)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "is another process using the port?" in said


@pytest.mark.parametrize(
    ("role", "fault"),
    [
        ("broker", "unformatted"),
        ("controller", "another node"),
        ("controller", "another cluster"),
        ("broker", "unreadable meta.properties"),
        ("controller", "missing"),
    ],
)
def test_a_metadata_directory_that_is_not_the_nodes_is_refused(node_files: Any, role: str, fault: str) -> None:
    directory = node_files.home(role) / "metadata"
    if fault == "another cluster":
        node_files.run_once("controller")
    told = spoil(directory, fault)
    code, said = node_files.run(role)
    assert code == 1
    assert str(node_files.home(role)) in said
    assert told in said, said


def test_a_log_directory_of_another_node_is_refused(node_files: Any) -> None:
    directory = node_files.home("broker") / "d1"
    told = spoil(directory, "another node")
    code, said = node_files.run("broker")
    assert code == 1
    assert str(directory) in said
    assert told in said, said


def test_a_broker_of_another_cluster_is_turned_away(node_files: Any) -> None:
    node_files.start("controller")
    node_files.wait_until_serving("controller")
    for name in ("metadata", "d0", "d1"):
        spoil(node_files.home("broker") / name, "another cluster")
    code, said = node_files.run("broker")
    assert code == 1
    assert "another-cluster" in said
    assert node_files.plan.cluster_id in said


def test_two_nodes_on_one_directory_are_refused(node_files: Any) -> None:
    node_files.start("controller")
    node_files.wait_until_serving("controller")
    ports = layout.free_ports(2)
    peer, grpc = next(ports), next(ports)
    node_files.change(
        "controller",
        listeners=f"CONTROLLER://127.0.0.1:{peer},GRPC://127.0.0.1:{grpc}",
        controller_quorum_bootstrap_servers=f"127.0.0.1:{peer}",
    )
    code, said = node_files.run("controller")
    assert code == 1
    assert str(node_files.home("controller") / "metadata") in said


def spoil(directory: pathlib.Path, fault: str) -> str:
    """Makes meta.properties say something else; what the refusal must say."""
    path = directory / meta_properties.FILE_NAME
    mine = meta_properties.read(directory)
    assert mine is not None
    match fault:
        case "unformatted":
            path.unlink()
            return "kraftlab storage format"
        case "missing":
            path.unlink()
            shutil.rmtree(directory)
            return "kraftlab storage format"
        case "another node":
            meta_properties.write(directory, meta_properties.MetaProperties(mine.cluster_id, 99, random_uuid()))
            return "99"
        case "another cluster":
            meta_properties.write(directory, meta_properties.MetaProperties("another-cluster", mine.node_id, random_uuid()))
            return "another-cluster"
        case _:
            path.write_bytes(b"version=1\ncluster.id=x\nnode.id=one\n")
            return "format the directory anew"

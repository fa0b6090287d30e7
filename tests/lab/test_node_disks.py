"""A cluster's disks that other processes still use, or that are interrupted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.lab import ClusterError, layout, node_disks, powered_disk
from kraftlab.lab.node_disks import NodeDisks
from kraftlab.lab.powered_disk import PoweredDisk

from ..helpers.waiting import wait_until

pytestmark = pytest.mark.cluster

BUSY = {"controller-3000", "broker-0"}


class Server:
    """Notes the disks that it has to unmount in the end."""

    lifeline = 2

    def __init__(self) -> None:
        self.to_unmount: list[str] = []

    def unmount_in_the_end(self, paths: Iterable[Path]) -> None:
        self.to_unmount = [path.name for path in paths]


def disks_in(directory: Path, *, wanted: bool) -> tuple[NodeDisks, Server]:
    server: Any = Server()
    return NodeDisks(directory, lambda: server, wanted=wanted), server


class UsedDisk:
    """A disk that is in use if its node is in `BUSY`."""

    unmounted: list[str]

    def __init__(self, image: Path, path: Path, descriptors: object) -> None:
        self.image, self.path = image, path

    def restore_power(self) -> None:
        pass

    def unmount(self) -> None:
        if self.path.name in BUSY:
            raise ClusterError(f"{self.path.name} is busy")
        self.unmounted.append(self.path.name)


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeDisks:
    UsedDisk.unmounted = []
    monkeypatch.setattr(node_disks, "PoweredDisk", UsedDisk)
    nodes = layout.plan(tmp_path, 3, 3, 1).nodes
    (tmp_path / "disks").mkdir()
    for node in nodes:
        (tmp_path / "disks" / f"{node.name}.image").touch()
    found, server = disks_in(tmp_path, wanted=False)
    found.mount(nodes)
    assert server.to_unmount == [node.name for node in nodes]
    return found


def test_a_disk_that_is_in_use_does_not_keep_the_others_mounted(disks: NodeDisks) -> None:
    with pytest.raises(ClusterError, match=r"^controller-3000 is busy; broker-0 is busy$"):
        disks.unmount()
    assert UsedDisk.unmounted == ["controller-3001", "controller-3002", "broker-1", "broker-2"]


def test_a_disk_has_its_name_once_it_can_be_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk whose formatting was killed is formatted again the next time."""
    disk = PoweredDisk(tmp_path / "node.image", tmp_path / "node")
    seen = []

    def run(*command: str, descriptors: object = ()) -> None:
        seen.append((command[0], disk.image.exists()))
        if command[0] == "mount":
            (disk.path / "lost+found").mkdir()

    monkeypatch.setattr(powered_disk, "run", run)
    disk.format(1)
    assert seen == [("mkfs.ext4", False), ("mount", True)]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["node.image"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_disk_that_is_being_mounted_when_somebody_presses_ctrl_c_is_unmounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """And it is mounted when it is wanted again."""
    mounted: list[str] = []

    def run(*command: str, descriptors: object = ()) -> None:
        if command[0] == "mount":
            assert server.to_unmount == [Path(command[-1]).name]
            mounted.append(command[-1])
            (Path(command[-1]) / "lost+found").mkdir(parents=True, exist_ok=True)
            if not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
        if command[0] == "umount":
            mounted.remove(command[-1])
            (Path(command[-1]) / "lost+found").rmdir()

    interrupted: list[bool] = []
    monkeypatch.setattr(powered_disk, "run", run)
    monkeypatch.setattr(powered_disk.os.path, "ismount", lambda path: str(path) in mounted)
    node = layout.plan(tmp_path, 1, 1, 1).nodes[0]
    if not is_new:
        (tmp_path / "disks").mkdir()
        (tmp_path / "disks" / f"{node.name}.image").touch()
        (tmp_path / node.name).mkdir()
    disks, server = disks_in(tmp_path, wanted=True)
    with pytest.raises(KeyboardInterrupt):
        disks.mount([node])
    disks.unmount()
    assert not mounted
    disks.mount([node])
    assert mounted == [str(tmp_path / node.name)]


CAN_MOUNT = sys.platform.startswith("linux") and os.geteuid() == 0 and Path("/dev/loop-control").exists()
PARENT = """
import os, sys
from kraftlab.lab import LocalCluster, local
class Quick(local.ForkServerProcess):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.signal(-1, 0)  # returns when it is there
local.ForkServerProcess = Quick
cluster = LocalCluster(sys.argv[1], 1, 0, 1, own_disks=True)
print(os.path.ismount(sys.argv[1] + "/controller-3000"), flush=True)
sys.stdin.read()
"""
LATE_MOUNT = """#!/bin/sh
touch {here}/begun
for _ in $(seq 2000); do test -e {here}/go-on && break; sleep 0.01; done
{mount} "$@"
mountpoint -q {home} && touch {here}/mounted
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The directory where a controller's disk is mounted."""
    path = tmp_path / "lab" / "controller-3000"
    yield path
    if path.is_mount():
        subprocess.run(["umount", path], check=True)


@pytest.mark.skipif(not (CAN_MOUNT and shutil.which("mkfs.ext4")), reason="needs root on Linux, loop devices and mkfs.ext4")
def test_disks_of_a_cluster_that_is_killed_before_it_starts_a_node_are_unmounted(home: Path) -> None:
    words = [sys.executable, "-c", PARENT, str(home.parent)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "True\n"
        parent.kill()
    wait_until(lambda: not home.is_mount(), "the disk is unmounted")


@pytest.mark.skipif(not (CAN_MOUNT and shutil.which("mkfs.ext4")), reason="needs root on Linux, loop devices and mkfs.ext4")
def test_a_disk_that_is_mounted_when_its_cluster_has_been_killed_is_unmounted(home: Path, tmp_path: Path) -> None:
    """The command that mounts it goes on alone."""
    late = tmp_path / "mount"
    late.write_text(LATE_MOUNT.format(here=tmp_path, home=home, mount=shutil.which("mount")))
    late.chmod(0o755)
    words = [sys.executable, "-c", PARENT, str(home.parent)]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ | path) as parent:
        wait_until((tmp_path / "begun").exists, "the disk is about to be mounted")
        parent.kill()
    (tmp_path / "go-on").touch()
    wait_until((tmp_path / "mounted").exists, "the disk has been mounted")
    wait_until(lambda: not home.is_mount(), "the disk is unmounted")

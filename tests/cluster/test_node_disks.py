"""Disks of a cluster's own, where others use them still."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kraftlab.cluster import ClusterError, layout, node_disks, powered_disk
from kraftlab.cluster.node_disks import NodeDisks
from kraftlab.cluster.powered_disk import PoweredDisk

BUSY = {"controller-3000", "broker-0"}


class UsedDisk:
    """Somebody has files open on those of `BUSY`, and nobody unmounts any."""

    unmounted: list[str]

    def __init__(self, image: Path, path: Path) -> None:
        self.image, self.path = image, path

    is_mounted = True

    def restore_power(self) -> None:
        pass

    def unmount(self) -> None:
        if self.path.name in BUSY:
            raise ClusterError(f"{self.path.name} is busy")
        self.unmounted.append(self.path.name)


@pytest.fixture
def slept_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept = [0.0]
    UsedDisk.unmounted = []

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    monkeypatch.setattr(node_disks, "PoweredDisk", UsedDisk)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: slept[0])
    return slept


@pytest.fixture
def disks(tmp_path: Path, slept_s: list[float]) -> NodeDisks:
    nodes = layout.plan(tmp_path, 3, 3, 1).nodes
    (tmp_path / "disks").mkdir()
    for node in nodes:
        (tmp_path / "disks" / f"{node.name}.image").touch()
    found = NodeDisks(tmp_path, wanted=False)
    found.mount(nodes)
    return found


def test_others_are_waited_for_once_and_not_once_per_disk(disks: NodeDisks, slept_s: list[float]) -> None:
    assert len(disks.paths) == 6
    assert 15 <= slept_s[0] < 16


def test_a_disk_that_is_in_use_does_not_keep_the_others_mounted(disks: NodeDisks) -> None:
    with pytest.raises(ClusterError, match=r"^controller-3000 is busy; broker-0 is busy$"):
        disks.unmount()
    assert UsedDisk.unmounted == ["controller-3001", "controller-3002", "broker-1", "broker-2"]


def test_a_disk_has_its_name_once_it_can_be_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed while it is formatted makes it anew the next time."""
    disk = PoweredDisk(tmp_path / "node.image", tmp_path / "node")
    seen = []

    def run(*command: str) -> None:
        seen.append((command[0], disk.image.exists()))
        if command[0] == "mount":
            (disk.path / "lost+found").mkdir()

    monkeypatch.setattr(powered_disk, "_run", run)
    disk.format(1)
    assert seen == [("mkfs.ext4", False), ("mount", True)]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["node.image"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_disk_that_is_being_mounted_when_somebody_presses_ctrl_c_is_unmounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """And it is mounted when it is wanted again."""
    mounted: list[str] = []

    def run(*command: str) -> None:
        if command[0] == "mount":
            mounted.append(command[-1])
            (Path(command[-1]) / "lost+found").mkdir(parents=True, exist_ok=True)
            if not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
        if command[0] == "umount":
            mounted.remove(command[-1])
            (Path(command[-1]) / "lost+found").rmdir()

    interrupted: list[bool] = []
    monkeypatch.setattr(powered_disk, "_run", run)
    monkeypatch.setattr(powered_disk.os.path, "ismount", lambda path: str(path) in mounted)
    node = layout.plan(tmp_path, 1, 1, 1).nodes[0]
    if not is_new:
        (tmp_path / "disks").mkdir()
        (tmp_path / "disks" / f"{node.name}.image").touch()
        (tmp_path / node.name).mkdir()
    disks = NodeDisks(tmp_path, wanted=True)
    with pytest.raises(KeyboardInterrupt):
        disks.mount([node])
    disks.unmount()
    assert not mounted
    disks.mount([node])
    assert mounted == [str(tmp_path / node.name)]

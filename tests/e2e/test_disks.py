"""Disks that are full or read-only: a clear message, nothing acknowledged is lost, and work goes on once there is space."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.demo.lab import wait_until
from kraftlab.demo.load import missing
from kraftlab.records.record_batch import Record, build_batch

MountDisk = Callable[..., pathlib.Path]


@pytest.fixture
def mount(scratch: pathlib.Path) -> Iterator[MountDisk]:
    """Mount a small disk with a directory's content over the directory; skip without the rights to mount."""
    mounted: list[pathlib.Path] = []

    def put(directory: pathlib.Path, size_bytes: int) -> pathlib.Path:
        aside = directory.with_name(directory.name + "-aside")
        directory.rename(aside)
        directory.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting a small disk takes more rights than this user has: {done.stderr.strip()}")
        mounted.append(directory)
        subprocess.run(["cp", "-a", f"{aside}/.", str(directory)], check=True)
        return directory

    try:
        yield put
    finally:
        for directory in mounted:
            subprocess.run(["umount", "--lazy", str(directory)], check=False)


def fill(disk: pathlib.Path) -> pathlib.Path:
    """A file that takes all the space that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size_bytes in (65536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size_bytes))
            except OSError:
                continue
    return ballast


def make_read_only(disk: pathlib.Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.mark.parametrize(("role", "fault"), [("controller", "full"), ("broker", "read-only")])
def test_a_node_does_not_start_on_a_metadata_disk_that_cannot_be_written(
    node_files: Any, mount: MountDisk, role: str, fault: str
) -> None:
    disk = mount(node_files.home(role) / "metadata", 1 << 20)
    if fault == "full":
        fill(disk)
    else:
        make_read_only(disk)
    code, said = node_files.run(role)
    assert code == 1
    assert str(disk) in said
    assert ("no space left" if fault == "full" else "read-only") in said
    assert "free space or remount it" in said


def test_formatting_a_full_disk_names_it(node_files: Any, mount: MountDisk, kraftlab_here: Any) -> None:
    disk = mount(node_files.home("broker") / "d1", 1 << 16)
    (disk / "meta.properties").unlink()
    fill(disk)
    files = ("-t", node_files.plan.cluster_id, "-c", str(node_files.config("broker")))
    code, said = kraftlab_here("storage", "format", *files, "-g")
    assert code == 1
    assert f"cannot format {disk}" in said
    assert "free space" in said


def test_a_metadata_disk_that_runs_full_holds_writes_up_until_there_is_space_and_loses_none(
    small_lab: Any, mount: MountDisk
) -> None:
    lab = small_lab
    lab.create_topic("t", [0])
    (controller,) = lab.cluster.controller_ids
    lab.cluster.stop_node(controller)
    disk = mount(lab.cluster.metadata_dir(controller), 12 << 20)
    lab.cluster.start_node(controller)
    lab.cluster.wait_ready()
    ballast = fill(disk)
    acknowledged = []
    with pytest.raises((ApiError, ClusterUnreachable)):
        for number in range(10_000):
            write_large(lab, number)
            acknowledged.append(number)
    assert len(acknowledged) > 50
    said = lab.cluster.log_path(controller).read_text()
    assert f"metadata log cannot be written, trying again until space returns: cannot preallocate {disk}" in said
    assert "The disk has no space left; free space" in said

    ballast.unlink()
    wait_until("writes go on", lambda: succeeds(lambda: write_large(lab, 50_000)))
    lab.cluster.kill_node(controller)
    lab.cluster.start_node(controller)
    lab.cluster.wait_ready()
    assert lab.topic_configs("t")["leader.replication.throttled.replicas"].startswith("50000:")
    assert lab.metadata_is_equal_everywhere()


PAYLOAD = ",".join(f"{number}:{number + 1}" for number in range(3000))


def write_large(lab: Any, number: int) -> None:
    """A metadata write of some tens of kilobytes, recognisable by its number."""
    change = pb.AlterableConfig(name="leader.replication.throttled.replicas", config_operation=0, value=f"{number}:0,{PAYLOAD}")
    resource = pb.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    lab.admin.incremental_alter_configs([resource], timeout_ms=2000)


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (ApiError, ClusterUnreachable):
        return False
    return True


def test_a_log_directory_that_runs_full_refuses_appends_until_there_is_space_and_loses_none(
    small_lab: Any, mount: MountDisk
) -> None:
    lab = small_lab
    lab.cluster.stop_node(0)
    small = mount(lab.cluster.log_dirs(0)[0], 2 << 20)
    lab.cluster.start_node(0)
    lab.cluster.wait_ready()
    names = ["on-one-disk", "on-the-other"]
    for name in names:
        lab.create_topic(name, [0])
        lab.fill(name, 20_000)
    bystander, victim = names
    lab.admin.alter_replica_log_dirs(0, {(victim, 0): str(small)})
    wait_until("one is on the small disk", lambda: {row.log_dir for row in lab.replicas_on_disk()[victim, 0]} == {str(small)})

    acknowledged: dict[bytes, int] = {}
    with pytest.raises(ApiError) as refused:
        for number in range(1000):
            value = b"%d." % number * 2000
            answer = lab.data.produce(victim, 0, build_batch([Record(None, value, 1_700_000_000_000)]), timeout_ms=1500)
            acknowledged[value] = answer.base_offset
    assert len(acknowledged) > 50
    told = f"no space left in {small}"
    assert told in str(refused.value)
    assert lab.cluster.log_path(0).read_text().count(told) == 1
    lab.fill(bystander, 20_000)

    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    lab.fill(victim, 20_000)
    lab.cluster.kill_node(0)
    lab.cluster.start_node(0)
    lab.cluster.wait_ready()
    assert missing(lab.data, (victim, 0), acknowledged) == 0
    lab.fill(victim, 20_000)


def test_a_broker_goes_on_without_a_read_only_log_directory_and_ends_without_any(small_lab: Any, mount: MountDisk) -> None:
    lab = small_lab
    lab.cluster.stop_node(0)
    first, second = (mount(path, 1 << 20) for path in lab.cluster.log_dirs(0))
    make_read_only(first)
    lab.cluster.start_node(0)
    lab.cluster.wait_ready()
    lab.create_topic("elsewhere", [0])
    lab.fill("elsewhere", 20_000)
    assert lab.replicas_on_disk()["elsewhere", 0][0].log_dir == str(second)
    assert str(first) in lab.cluster.log_path(0).read_text()

    lab.cluster.stop_node(0)
    make_read_only(second)
    lab.cluster.start_node(0)
    wait_until("it gives up", lambda: lab.cluster.exited() == {0: 1})
    assert str(second) in lab.cluster.last_words(0)

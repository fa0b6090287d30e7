"""The log manager: starting, after a crash and after a clean stop, and the replicas that nobody wants."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kraftlab.broker.log.creating import NewReplica
from kraftlab.broker.log.errors import (
    LogDirInUse,
    StartupRefused,
)
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties

from .conftest import OTHER, TOPIC, Broker, batch, replica


def test_a_replica_the_metadata_does_not_know_is_set_aside_after_a_grace_period_unless_it_is_claimed(broker: Broker) -> None:
    manager = broker.start()
    for name, topic_id in (("t", TOPIC), ("u", OTHER)):
        manager.get_or_create(name, topic_id, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager = broker.start()
    assert manager.get(TOPIC, 0) is None
    assert manager.get_or_create("u", OTHER, 0).log_end_offset == 5
    assert manager.remove_expired(29_999) == 0
    assert manager.remove_expired(30_000) == 1
    assert broker.names(0) == ["t-0-stray", "u-0"]
    [described, _] = manager.describe()
    assert [(stray.topic, stray.partition) for stray in described.strays] == [("t", 0)]
    [described, _] = broker.start(replica(broker, 0, "u", OTHER)).describe()
    assert [stray.topic for stray in described.strays] == ["t"]
    assert described.strays[0].size_bytes > 0


def test_a_recreated_topic_pushes_the_old_replica_aside_at_once(broker: Broker) -> None:
    broker.start().get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager = broker.start(replica(broker, 0, topic_id=OTHER))
    assert manager.get_or_create("t", OTHER, 0, broker.ids[0]).log_end_offset == 0
    assert broker.names(0) == ["t-0", "t-0-stray"]


def test_directories_that_contradict_each_other_refuse_the_start_and_change_nothing(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager.close()
    shutil.copytree(broker.dirs[0] / "t-0", broker.dirs[1] / "t-0")
    twin = PartitionLog.open(broker.dirs[1] / "t-0", topic="t", partition=0, topic_id=TOPIC, directory_id=broker.ids[1])
    twin.append_as_leader(batch(9), 2)
    twin.close()
    manager = broker.open()
    with pytest.raises(StartupRefused, match="move one of the two away"):
        manager.start([replica(broker, 0)], now_ms=0)
    assert (broker.names(0), broker.names(1)) == (["t-0"], ["t-0"])


def test_a_second_process_is_refused(broker: Broker) -> None:
    broker.start()
    code = (
        "import sys; from pathlib import Path\n"
        "from kraftlab.broker.log.errors import LogDirInUse; from kraftlab.broker.log.log_manager import LogManager\n"
        "try: LogManager.open([Path(sys.argv[1])], node_id=1, cluster_id='cluster')\n"
        "except LogDirInUse as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(broker.dirs[1])], capture_output=True, text=True, timeout=20, check=True
    )
    assert f"{broker.dirs[1]} is in use by process {os.getpid()}" in done.stdout
    with pytest.raises(LogDirInUse):
        LogManager.open([broker.dirs[0]], node_id=1, cluster_id="cluster")


@pytest.mark.parametrize(("node_id", "cluster_id"), [(2, "cluster"), (1, "another")])
def test_directories_of_another_node_or_cluster_refuse_the_start(broker: Broker, node_id: int, cluster_id: str) -> None:
    with pytest.raises(StartupRefused, match=r"belongs to (node 1 of this cluster|another cluster: to node 1)"):
        LogManager.open(broker.dirs, node_id=node_id, cluster_id=cluster_id)
    broker.start()


def test_a_copied_directory_refuses_the_start(broker: Broker, tmp_path: Path) -> None:
    meta_properties.write(tmp_path / "copy", MetaProperties("cluster", 1, broker.ids[0]))
    with pytest.raises(StartupRefused, match=r"same directory\.id"):
        LogManager.open([*broker.dirs, tmp_path / "copy"], node_id=1, cluster_id="cluster")
    broker.start()


def test_description_has_sizes_and_lags(broker: Broker) -> None:
    manager, log = broker.with_log(batch(5))
    manager.create_future(TOPIC, 0, broker.dirs[1])
    first, second = manager.describe()
    assert (first.path, first.directory_id, first.error) == (broker.dirs[0], broker.ids[0], None)
    assert 0 < first.usable_bytes <= first.total_bytes
    [current], [future] = first.replicas, second.replicas
    assert (current.topic, current.partition, current.size_bytes, current.offset_lag, current.is_future) == (
        "t",
        0,
        log.size_bytes,
        0,
        False,
    )
    assert (future.size_bytes, future.offset_lag, future.is_future) == (0, 5, True)


def test_foreign_directories_are_left_alone_and_half_created_ones_removed(broker: Broker) -> None:
    for name in ("lost+found", "__cluster_metadata-0", ".creating-abc"):
        (broker.dirs[0] / name).mkdir()
    broker.start()
    assert broker.names(0) == ["__cluster_metadata-0", "lost+found"]


def test_replicas_can_be_claimed_while_another_thread_looks_at_all_logs(broker: Broker) -> None:
    """Checkpoints are written without the manager's lock."""
    manager, number = broker.start(), range(100)
    wanted = [NewReplica("t", TOPIC, partition, broker.ids[0], False, manager.config) for partition in number]
    assert not manager.create_together(wanted)
    manager = broker.start()
    faults: list[Exception] = []
    is_over = threading.Event()

    def look() -> None:
        try:
            while not is_over.is_set():
                manager.write_log_start_offsets(broker.dirs[0])
        except RuntimeError as error:
            faults.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        for partition in number:
            manager.get_or_create("t", TOPIC, partition)
    finally:
        sys.setswitchinterval(interval_s)
        is_over.set()
        thread.join()
    assert not faults
    assert len(manager.currents()) == len(number)

"""A sample of what the model of disks says, on real ones: a recorded run is repeated on two ext4 file systems, their power is cut
in the middle, and the broker's recovery runs on what is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jepsen_lite.faults.capabilities import new_disk
from jepsen_lite.faults.ledger import Ledger
from kraftlab.checking.disk_model import (
    Create,
    Mark,
    Operation,
    Remove,
    Rename,
    Resize,
    SyncDirectory,
    SyncFile,
    Write,
)
from kraftlab.checking.mutant import planted
from kraftlab.lab import ClusterError
from kraftlab.simulation.crash_images.mutants import BUGS
from kraftlab.simulation.crash_images.protocol import RecordedRun, record
from kraftlab.simulation.crash_images.recorder import Recorder
from kraftlab.simulation.crash_images.recovery import IN_ORDER, Case, Demand, JudgedCase, judge, quiet

CUTS = 12


class Repeated:
    """Carries out recorded operations in real directories."""

    def __init__(self, roots: list[Path]) -> None:
        self._paths = dict(enumerate(roots))

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case Create(directory, name, inode, is_directory):
                self._paths[inode] = path = self._paths[directory] / name
                path.mkdir() if is_directory else path.touch()
            case Rename(directory, source, target, inode):
                before, after = self._paths[directory] / source, self._paths[directory] / target
                before.replace(after)
                moved = [(key, path) for key, path in self._paths.items() if path == before or before in path.parents]
                self._paths.update({key: after / path.relative_to(before) for key, path in moved})
            case Remove(directory, name):
                path = self._paths[directory] / name
                path.rmdir() if path.is_dir() else path.unlink()
            case Write() | Resize() | SyncFile() | SyncDirectory():
                self._on_open(operation)

    def _on_open(self, operation: Write | Resize | SyncFile | SyncDirectory) -> None:
        path = self._paths[operation.inode]
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            match operation:
                case Write(_, position, data):
                    os.pwrite(descriptor, data, position)
                case Resize(_, size_bytes):
                    os.ftruncate(descriptor, size_bytes)
                case _:
                    os.fsync(descriptor)
        finally:
            os.close(descriptor)


def demanded(recorded: RecordedRun, step: int) -> tuple[Any, Demand]:
    """The assigned directory and the demand after a loss of power before that step."""
    said: dict[str, list[Any]] = {"committed": [], "durable": [0], "high watermark": [0]}
    for operation in recorded.trace[:step]:
        if isinstance(operation, Mark) and operation.what in said:
            said[operation.what].append(operation.value)
    return said["committed"][-1], Demand(max(said["durable"]), said["high watermark"][-1])


def after_power_loss(recorded: RecordedRun, step: int) -> list[JudgedCase]:
    """Carry out the run's operations before `step` on ext4 disks, take their power, and return the broken rules."""
    with Ledger() as ledger:
        try:
            disks = [new_disk(ledger) for _ in recorded.disks]
        except ClusterError as error:
            pytest.skip(str(error))
        roots = [disk.path / name for disk, name in zip(disks, recorded.disks, strict=True)]
        for disk, root in zip(disks, roots, strict=True):
            root.mkdir()
            disk.sync()
        repeated = Repeated(roots)
        for operation in recorded.trace[:step]:
            repeated.carry_out(operation)
        for disk in disks:
            disk.lose_power()
            disk.restore_power()
        tree = Recorder(roots).tree()
        for disk in disks:
            disk.unmount()
    assigned, demand = demanded(recorded, step)
    return judge(recorded, {Case(tree, assigned, step, IN_ORDER): demand})


def marks(recorded: RecordedRun, what: str) -> list[int]:
    """Positions of these marks in the trace."""
    return [step for step, operation in enumerate(recorded.trace) if isinstance(operation, Mark) and operation.what == what]


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["idle", "busy"])
def test_the_replica_is_whole_after_real_losses_of_power(script: str) -> None:
    with quiet():
        recorded = record(script)
    begun, end = marks(recorded, "begun")[0], len(recorded.trace)
    for step in range(begun + 1, end, (end - begun) // CUTS):
        assert after_power_loss(recorded, step) == [], f"power lost before step {step}"


@pytest.mark.nightly
def test_a_copy_that_was_not_synced_before_the_swap_is_lost_on_real_disks_too() -> None:
    with quiet(), planted(BUGS["M2"]):
        recorded = record("idle")
        [broken] = after_power_loss(recorded, marks(recorded, "durable")[1] + 1)
    assert "holds 0 batches; 4 have to be there" in broken.fault

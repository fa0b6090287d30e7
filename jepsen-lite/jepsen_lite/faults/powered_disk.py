"""Disks whose power can be taken, which go with the ledger (`kraftlab.lab.powered_disk` says how)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftlab.lab import powered_disk
from kraftlab.lab.layout import FIRST_CONTROLLER_ID, ClusterError

from .errors import CannotStrike
from .ledger import Ledger, Mount


class PoweredDisk(powered_disk.PoweredDisk):
    """Mounted at `path`; what fails is CannotStrike."""

    def __init__(self, image: Path, path: Path, ledger: Ledger) -> None:
        super().__init__(image, path)
        self._ledger = ledger
        self._mount = Mount(str(path))
        self.has_power = False

    @classmethod
    def make(cls, ledger: Ledger, *, size_mib: int = 64) -> PoweredDisk:
        """An empty disk, which goes with the ledger. CannotStrike."""
        home = ledger.new_directory()
        disk = cls(home / "image", home / "disk", ledger)
        with _cannot_strike():
            disk.format(size_mib)
        return disk

    def sync(self) -> None:
        with _cannot_strike():
            super().sync()

    def lose_power(self) -> None:
        """Where nothing is mounted it would be the disk below, which is the machine's own: CannotStrike."""
        if not self.is_mounted:
            raise CannotStrike(f"{self.path} has no power: nothing is mounted there")
        self.has_power = False
        super().lose_power()

    def restore_power(self) -> None:
        self.unmount()
        self._ledger.add(self._mount)
        with _cannot_strike():
            super().restore_power()
        self.has_power = True

    def unmount(self) -> None:
        was_mounted = self.is_mounted
        with _cannot_strike():
            super().unmount()
        if was_mounted:
            self._ledger.drop(self._mount)


def controllers_on_disks(ledger: Ledger, data_directory: Path, controllers: int) -> dict[int, PoweredDisk]:
    """Disks for the controllers of a cluster that is to be laid out in `data_directory`, by node id. CannotStrike."""
    data_directory.mkdir(parents=True, exist_ok=True)
    disks = {}
    for node in range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers):
        disks[node] = PoweredDisk.make(ledger)
        (data_directory / f"controller-{node}").symlink_to(disks[node].path)
    return disks


@contextmanager
def _cannot_strike() -> Iterator[None]:
    try:
        yield
    except ClusterError as error:
        raise CannotStrike(str(error)) from error

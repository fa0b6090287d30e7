"""A disk whose power can be taken: an ext4 of its own in a file, mounted by a loop device.

Theory of operation. The ioctl EXT4_IOC_SHUTDOWN with the flag "without writing the log" stops a file system within an instant:
nothing that was not synced reaches its disk any more, and whoever has files open gets EIO from then on. That is what a loss of
power leaves, torn files and names included. Mounting it again replays its journal, as after a reboot. Only root may do this.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

from kraftlab.cluster.layout import FIRST_CONTROLLER_ID

from .faults import CannotStrike
from .ledger import Ledger, Mount

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2
_COMMAND_TIMEOUT_S = 30.0
_UNMOUNTED_WITHIN_S = 10.0


class PoweredDisk:
    """Mounted at `path`. Thread-safe as long as one thread uses it."""

    def __init__(self, image: Path, path: Path, ledger: Ledger) -> None:
        self.image, self.path = image, path
        self._ledger = ledger
        self._mount = Mount(str(path))

    @classmethod
    def make(cls, ledger: Ledger, *, size_mib: int = 64) -> PoweredDisk:
        """An empty disk, which goes with the ledger. CannotStrike."""
        home = ledger.new_directory()
        image, path = home / "image", home / "disk"
        path.mkdir()
        with open(image, "wb") as file:
            file.truncate(size_mib * 1024 * 1024)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image))
        disk = cls(image, path, ledger)
        disk.restore_power()
        (path / "lost+found").rmdir()
        return disk

    def sync(self) -> None:
        """What is written is on the disk."""
        _run("sync", "--file-system", str(self.path))

    def lose_power(self) -> None:
        """What is not on the disk now will never be. OSError."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mounts the disk, which is unmounted first if it has been shut down; nobody may have files of it open. CannotStrike."""
        if os.path.ismount(self.path):
            self._unmount()
        self._ledger.add(self._mount)
        _run("mount", "-t", "ext4", "-o", "loop", str(self.image), str(self.path))

    def remove(self) -> None:
        """Unmounts it; its directory goes with the ledger."""
        if os.path.ismount(self.path):
            self._unmount()

    def _unmount(self) -> None:
        deadline = time.monotonic() + _UNMOUNTED_WITHIN_S
        while True:
            try:
                _run("umount", str(self.path))
                break
            except CannotStrike:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)  # what was killed may still be closing its files
        self._ledger.drop(self._mount)


def controllers_on_disks(ledger: Ledger, data_directory: Path, controllers: int) -> dict[int, PoweredDisk]:
    """Disks for the controllers of a cluster that is to be laid out in `data_directory`, by node id. CannotStrike."""
    data_directory.mkdir(parents=True, exist_ok=True)
    disks = {}
    for node in range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers):
        disks[node] = PoweredDisk.make(ledger)
        (data_directory / f"controller-{node}").symlink_to(disks[node].path)
    return disks


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise CannotStrike(f"{command[0]} is not installed; see `kraftlab chaos doctor`") from None
    except subprocess.TimeoutExpired:
        raise CannotStrike(f"`{' '.join(command)}` did not end within {_COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        raise CannotStrike(f"`{' '.join(command)}` failed: {done.stderr.strip()}")

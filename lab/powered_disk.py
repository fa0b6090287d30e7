"""A disk that can lose its power: an ext4 in a file, mounted by a loop device.

Theory of operation. The ioctl EXT4_IOC_SHUTDOWN with the flag "without writing the log" stops a file system within an instant:
data that were not synced never reach its disk, and processes with open files get EIO from then on. That is the state after a loss
of power, torn files and names included. Mounting it again replays its journal, as after a reboot. Only root may do this.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from .cluster_plan import ClusterError

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2
_COMMAND_TIMEOUT_S = 30.0
_UNMOUNTED_WITHIN_S = 10.0
_POLL_S = 0.02


class PoweredDisk:
    """An ext4 in a file, mounted at `path` while it has power. Its mounting process inherits `descriptors`. Not thread-safe."""

    def __init__(self, image: Path, path: Path, descriptors: Collection[int] = ()) -> None:
        self.image, self.path = image, path
        self._descriptors = descriptors
        self._is_shut_down = False

    def format(self, size_mib: int) -> None:
        """Make an empty disk in a sparse file and mount it. The file gets its name once it can be mounted. ClusterError."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.image.with_suffix(".new")
        try:
            with open(new, "wb") as file:
                file.truncate(size_mib * 1024 * 1024)
            run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(new))
            new.replace(self.image)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self.restore_power()
        (self.path / "lost+found").rmdir()

    @property
    def is_mounted(self) -> bool:
        return os.path.ismount(self.path)

    @property
    def has_power(self) -> bool:
        return self.is_mounted and not self._is_shut_down

    def sync(self) -> None:
        """Write everything to the disk. ClusterError."""
        run("sync", "--file-system", str(self.path))

    def lose_power(self) -> None:
        """Lose all data that are not on the disk. OSError. ClusterError if it is not mounted: otherwise the file system below
        would lose its power, which is the machine's own.
        """
        if not self.is_mounted:
            raise ClusterError(f"{self.path} has no power: nothing is mounted there")
        self._is_shut_down = True
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount the disk again. No process may have files of it open. ClusterError."""
        self.unmount()
        run("mount", "-t", "ext4", "-o", "loop", str(self.image), str(self.path), descriptors=self._descriptors)
        self._is_shut_down = False

    def unmount(self) -> None:
        """Unmount the disk if it is mounted; wait for processes that are ending. ClusterError."""
        deadline = time.monotonic() + _UNMOUNTED_WITHIN_S
        while self.is_mounted:
            try:
                run("umount", str(self.path))
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)


def run(*command: str, descriptors: Collection[int] = ()) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False, pass_fds=descriptors
        )
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not installed; see `kraftlab chaos doctor`") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{' '.join(command)}` did not end within {_COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")

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
from collections.abc import Collection
from pathlib import Path

from .layout import ClusterError

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2
_COMMAND_TIMEOUT_S = 30.0
_UNMOUNTED_WITHIN_S = 10.0
_POLL_S = 0.02


class PoweredDisk:
    """What is in the file `image`, mounted at `path` while it has power; who mounts it has these `descriptors` open. Thread-safe
    as long as one thread uses it.
    """

    def __init__(self, image: Path, path: Path, descriptors: Collection[int] = ()) -> None:
        self.image, self.path = image, path
        self._descriptors = descriptors

    def format(self, size_mib: int) -> None:
        """Makes it an empty disk, with power. The file takes as much space as is written; it has its name once it can be mounted.
        ClusterError.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.image.with_suffix(".new")
        try:
            with open(new, "wb") as file:
                file.truncate(size_mib * 1024 * 1024)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(new))
            new.replace(self.image)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self.restore_power()
        (self.path / "lost+found").rmdir()

    @property
    def is_mounted(self) -> bool:
        return os.path.ismount(self.path)

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
        """Mounts the disk, which is unmounted first if it has been shut down; nobody may have files of it open. ClusterError."""
        self.unmount()
        _run("mount", "-t", "ext4", "-o", "loop", str(self.image), str(self.path), descriptors=self._descriptors)

    def unmount(self) -> None:
        """Waits for processes that are ending; does nothing if it is not mounted. ClusterError."""
        deadline = time.monotonic() + _UNMOUNTED_WITHIN_S
        while self.is_mounted:
            try:
                _run("umount", str(self.path))
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)


def _run(*command: str, descriptors: Collection[int] = ()) -> None:
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

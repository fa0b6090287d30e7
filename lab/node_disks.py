"""Disks for the nodes of a cluster, one each, so that a node can lose its power, and with it all unsynced data.

    DIR/disks/NODE.image        an ext4, in a file that grows with its content
    DIR/NODE/                   where it is mounted while the cluster runs

A cluster with such disks always keeps them: each start mounts them, and needs root for that. They are unmounted with the last of
its processes, however those end: by the fork server, which outlives a killed parent and learns of each disk before that is
mounted. If both were killed, the next start of the cluster unmounts them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlab.config.private_files import PRIVATE_DIRECTORY

from .cluster_plan import ClusterError, NodePlan
from .powered_disk import PoweredDisk

if TYPE_CHECKING:
    from .processes import ForkServerProcess

SIZE_MIB = 2048
"""Size of each disk. Unwritten blocks take no space."""
_DIRECTORY = "disks"


def has_own_disks(directory: Path) -> bool:
    """Return True if the cluster in a directory was laid out with a disk for each node."""
    return any((directory / _DIRECTORY).glob("*.image"))


class NodeDisks:
    """Disks of the cluster in `directory`; none unless it was laid out with them, or is new and they are `wanted`. `server` is
    called before one is mounted.
    """

    def __init__(self, directory: Path, server: Callable[[], ForkServerProcess], *, wanted: bool) -> None:
        self._directory = directory
        self._server = server
        self.by_node: dict[int, PoweredDisk] = {}
        self.are_used = wanted or has_own_disks(directory)

    @property
    def _images(self) -> Path:
        return self._directory / _DIRECTORY

    def mount(self, nodes: Iterable[NodePlan]) -> None:
        """Make or mount the disks of these nodes, which do not run. ClusterError."""
        if not self.are_used:
            return
        for node in nodes:
            disk = self.by_node.get(node.node_id)
            if disk is None or not disk.is_mounted:
                self._mount(node)

    def _mount(self, node: NodePlan) -> None:
        server = self._server()
        disk = PoweredDisk(self._images / f"{node.name}.image", self._directory / node.name, [server.lifeline])
        try:
            is_new = not disk.image.exists()
            if is_new and disk.path.exists() and any(disk.path.iterdir()):
                raise ClusterError(
                    f"{disk.path} is not a disk of its own and cannot lose its power; use a new directory, or omit --own-disks"
                )
            # Noted first: a caller that is interrupted during the mount unmounts it, or the server after a kill.
            self.by_node[node.node_id] = disk
            server.unmount_in_the_end(each.path for each in self.by_node.values())
            if is_new:
                self._format(disk)
            else:
                disk.restore_power()
        except OSError as error:
            raise ClusterError(f"cannot make {disk.image}: {error.strerror}") from error

    def _format(self, disk: PoweredDisk) -> None:
        if not sys.platform.startswith("linux") or os.geteuid() != 0:
            raise ClusterError(
                "disks of their own for nodes are mounted by loop devices, which takes root on Linux; leave them out"
            )
        self._images.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        try:
            disk.format(SIZE_MIB)
        except BaseException:
            disk.image.unlink(missing_ok=True)
            raise

    def sync(self) -> None:
        """Write everything to the disks, as an idle machine would have before it loses its power."""
        for disk in self.by_node.values():
            disk.sync()

    def unmount(self) -> None:
        """Unmount all disks. ClusterError about those that are in use, when the others are unmounted."""
        faults: list[str] = []
        for disk in self.by_node.values():
            try:
                disk.unmount()
            except ClusterError as error:
                faults.append(str(error))
        if faults:
            raise ClusterError("; ".join(faults))

"""A disk that can lose its power, noted in the ledger."""

from __future__ import annotations

from kraftlab.lab.powered_disk import PoweredDisk

from .ledger import Ledger, Mount


def new_disk(ledger: Ledger, *, size_mib: int = 64) -> PoweredDisk:
    """Make an empty disk that is unmounted and removed with the ledger. ClusterError."""
    home = ledger.new_directory()
    disk = PoweredDisk(home / "image", home / "disk")
    ledger.add(Mount(str(disk.path)))
    disk.format(size_mib)
    return disk

"""Unix sockets with a path that is longer than a socket's address may be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..cluster_plan import ClusterError

_ADDRESS_BYTES_MAX = 100


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield the address to bind or connect to, valid inside the block. ClusterError if this system allows no such path."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    if not os.path.isdir("/proc/self/fd"):
        raise ClusterError(f"{path} is too long for a socket's address; use a shorter --data")
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)

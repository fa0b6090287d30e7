"""A full disk, for one process.

Filling a real disk would break everything else on it. Instead the kernel stops the process from writing files (RLIMIT_FSIZE,
which the owner of a running process may lower and raise again): every write to a file and every preallocation fails with EFBIG,
which nodes treat as a full disk. It differs from a full disk: it applies to all disks of the node, its own log included, and to
space that files have already. Sockets and pipes are not affected; names can be made, renamed and removed, as on a full disk. The
limit ends with the process.
"""

from __future__ import annotations

import resource

from ..cluster_plan import ClusterError


def fill(pid: int) -> None:
    """Stop the process from writing files. ClusterError where the system cannot do that."""
    _limit(pid, is_full=True)


def free(pid: int) -> None:
    """Let the process write files again."""
    _limit(pid, is_full=False)


def is_full(pid: int) -> bool:
    """Return True if the process cannot write files."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_FSIZE)[0] == 0
    except (AttributeError, OSError):
        return False


def _limit(pid: int, *, is_full: bool) -> None:
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))
    except AttributeError:
        raise ClusterError("only Linux limits the files of a running process; put the node's directory on a small disk") from None
    except OSError as error:
        raise ClusterError(f"cannot limit the files of process {pid}: {error.strerror}; does the node still run?") from error

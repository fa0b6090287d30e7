"""Network namespaces of Linux: private networks of processes of this machine.

Theory of operation. A namespace belongs to a thread, not to a process: sockets, threads and processes that a thread makes belong
to its namespace at that moment, and stay there. So a process moves as a whole only while it has one thread. A namespace is named
by a path under `/proc`, and is gone when no thread is in it and no process holds such a file open. Moving takes root; a process
without it can become root of a user namespace, and of the networks that are made there.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path

OWN = "/proc/self/ns/net"
"""The namespace of a process's first thread."""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def enter(path: str) -> None:
    """Move this thread into the namespace of that path. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", path, descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


def enter_new() -> None:
    """Move this thread into a new namespace, which has only a loopback device that is down. OSError."""
    _call("unshare", None, _CLONE_NEWNET)


def become_root() -> None:
    """Move this process, which has one thread, into a user namespace where it is root; outside it keeps its user. OSError."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", None, _CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(text)


def is_alone() -> bool:
    """Return True if this process has one thread, so that it moves as a whole."""
    return len(os.listdir("/proc/self/task")) == 1


def socket_in(path: str, kind: socket.SocketKind) -> socket.socket:
    """Make an IPv4 socket in that namespace, for a caller in another one. OSError."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            enter(path)
            made.append(socket.socket(socket.AF_INET, kind))
        except OSError as error:
            made.append(error)

    mover = threading.Thread(target=make, name="namespace")
    mover.start()
    mover.join()
    (found,) = made
    if isinstance(found, OSError):
        raise found
    return found


def _call(function: str, path: str | None, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}", path)

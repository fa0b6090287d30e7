"""Network namespaces of Linux: networks that processes of this machine have to themselves.

Theory of operation. A namespace is part of a thread, not of a process: what a thread makes (sockets, threads, processes) belongs
where the thread was at that moment, and stays there. So a process moves as a whole only while it has one thread. A namespace is
named by a path under `/proc`, and is gone when nobody is in it and nobody holds such a file open. Moving takes root; who is not
can become root of a user namespace, and of the networks that are made in that.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path

OWN = "/proc/self/ns/net"
"""Where the first thread of a process is."""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def enter(path: str) -> None:
    """Move this thread into the namespace that the path names. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", path, descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


def enter_new() -> None:
    """Move this thread into a namespace of its own, in which nothing is but a loopback device that is down. OSError."""
    _call("unshare", None, _CLONE_NEWNET)


def become_root() -> None:
    """Move this process, which has one thread, into a user namespace where it is root; outside it stays who it is. OSError."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", None, _CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(text)


def is_alone() -> bool:
    """Whether this process has one thread, so that it moves as a whole."""
    return len(os.listdir("/proc/self/task")) == 1


def socket_in(path: str, kind: socket.SocketKind) -> socket.socket:
    """An IPv4 socket in that namespace, for whoever is elsewhere. OSError."""
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

"""A console as a child process: `kraftlab up` and others start one beside a cluster, and it ends with them.

The child's stdin is a pipe of the parent, which ends with the parent, however that ends. So nobody else imports what the console
needs.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from kraftlab.common.extras import not_installed

from ..output import CommandFailed

PACKAGES = ("hypercorn", "starlette")
_STOP_S = 5.0


class _Ready(msgspec.Struct):
    """The line of a console that serves."""

    url: str


def check_installed() -> None:
    """Refuse to start without the packages of a console. CommandFailed."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise CommandFailed(f"Error: {not_installed(package, 'console')}")


def free_port(port: int, *, chosen: bool) -> int:
    """Return a port for a console: the given one, or 0 (any) if that is in use. CommandFailed if a `chosen` port is in use."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        if chosen:
            why = f"cannot listen on port {port}: {os.strerror(error.errno or 0)}"
            raise CommandFailed(f"Error: {why}; choose another for the console: --console-port PORT, or 0 for any") from None
        return 0
    return port


def pages_of(directory: Path, port: int, *, allow_chaos: bool, more: tuple[str, ...] = ()) -> AbstractContextManager[str]:
    """Serve the cluster on a directory, as `serving` does. `more` are further options."""
    return serving(port, "--data", str(directory), *(["--allow-chaos"] if allow_chaos else []), *more)


@contextmanager
def serving(port: int, *options: str) -> Iterator[str]:
    """Run `kraftlab console` with these options inside the `with` block, and yield the URL. CommandFailed."""
    command = [sys.executable, "-m", "kraftlab.cli.main", "console", "--listen", f"127.0.0.1:{port}", "--until-eof", "--json"]
    command += options
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdin is not None and child.stdout is not None, "both are pipes"
    try:
        line = child.stdout.readline()
        try:
            url = msgspec.json.decode(line, type=_Ready).url
        except msgspec.MsgspecError:
            child.wait()
            raise CommandFailed(f"Error: the console has not started: {_reason(line)}") from None
        yield url
    finally:
        child.stdin.close()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


def _reason(line: bytes) -> str:
    try:
        return str(msgspec.json.decode(line)["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return "its output above has the reason"

"""The parent's side of the fork server: node processes to start, signal and wait for."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict, Unpack

import msgspec

from kraftlab.node import service_manager

from .cluster_plan import ClusterError
from .fork_server import Event, Request, SignalAnswer, SignalRequest, Start, StartAnswer, Unmount

START_TIMEOUT_S = 30.0
_SIGNAL_TIMEOUT_S = 5.0
_decode = msgspec.json.Decoder(Event).decode
_encode = msgspec.json.Encoder().encode


class StartOptions(TypedDict, total=False):
    """Fields of `Start` that have defaults."""

    namespace: str
    clock: str
    speaks_tls: bool
    introduction: bytes


def exit_text(code: int) -> str:
    """Say how a process ended: `ended with code 3`, `was killed by SIGKILL`."""
    try:
        return f"was killed by {signal.Signals(-code).name}" if code < -1 else f"ended with code {code}"
    except ValueError:
        return f"was killed by signal {-code}"


class NodeProcess:
    """A node's process. `code`: None while it runs, then its exit code or the negative number of the signal that ended it."""

    def __init__(self, server: ForkServerProcess, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.code: int | None = None
        self.ended = threading.Event()

    def signal(self, number: int) -> None:
        """Send a signal if the process still runs; after SIGSTOP it is stopped when this returns."""
        if self.code is None:
            self._server.signal(self.pid, int(number))

    def wait(self, timeout_s: float) -> bool:
        """Return True if it ended in time."""
        return self.ended.wait(timeout_s)


def start_fork_server(descriptors: Collection[int], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process of a fork server, with pipes as standard input and output. Its nodes do not speak to the service manager
    of this process: they start and stop while it runs.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in service_manager.VARIABLES}
    return subprocess.Popen(
        [sys.executable, "-m", "kraftlab.lab.fork_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=descriptors,
        env={**inherited, **environment},
    )


class ForkServerProcess:
    """The running server; it and all nodes inherit these `descriptors` and variables. Thread-safe. `close` ends it with every
    node.
    """

    def __init__(self, descriptors: Collection[int] = (), environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.process = start_fork_server(descriptors, environment)
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self.nodes: dict[int, NodeProcess] = {}
        self._started: dict[int, NodeProcess] = {}
        self._given_up: set[int] = set()
        self._unsignalled: set[int] = set()
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="fork-server", daemon=True)
        self._reader.start()

    def begin(self, role: str, config: str, log: str, **options: Unpack[StartOptions]) -> int:
        """Ask for a node and return at once; `collect` returns its process. Options are those of `Start`."""
        number = next(self._numbers)
        self.send(Start(number, role, config, log, **options))
        return number

    def collect(self, number: int) -> NodeProcess:
        """Return the requested process. ClusterError if the server is gone, or did not start the node in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._gone or number in self._started, START_TIMEOUT_S)
            process = self._started.pop(number, None)
        if process is not None:
            return process
        if self._gone:
            raise ClusterError("the process that starts nodes has ended; see its message above")
        raise ClusterError(f"no node was started within {START_TIMEOUT_S:g} s; this machine may be too busy. Try again later")

    def give_up(self, numbers: Iterable[int]) -> None:
        """Kill nodes that were requested and not collected, also those that start later."""
        for number in numbers:
            with self._changed:
                process = self._started.pop(number, None)
                if process is None:
                    self._given_up.add(number)
            if process is not None:
                process.signal(signal.SIGKILL)

    def signal(self, pid: int, number: int) -> None:
        """Return when the signal has been sent, or the server is gone."""
        with self._changed:
            request = next(self._numbers)
            self._unsignalled.add(request)
            self.send(SignalRequest(request, pid, number))
            self._changed.wait_for(lambda: self._gone or request not in self._unsignalled, _SIGNAL_TIMEOUT_S)

    @property
    def lifeline(self) -> int:
        """A descriptor: while any process has it open, this process counts as alive for the server."""
        assert self.process.stdin is not None, "it is a pipe"
        return self.process.stdin.fileno()

    def unmount_in_the_end(self, paths: Iterable[Path]) -> None:
        """Let the server unmount these paths, instead of those of former calls, when this process and all nodes have ended. A
        process that mounts them later inherits the lifeline.
        """
        self.send(Unmount(tuple(map(str, paths))))

    def send(self, request: Request) -> None:
        assert self.process.stdin is not None, "it is a pipe"
        with self._changed:
            try:
                self.process.stdin.write(_encode(request) + b"\n")
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                self._gone = True

    def _read(self) -> None:
        assert self.process.stdout is not None, "it is a pipe"
        for line in self.process.stdout:
            event = _decode(line)
            with self._changed:
                if isinstance(event, StartAnswer):
                    self.nodes[event.pid] = process = NodeProcess(self, event.pid)
                    if event.request in self._given_up:
                        self.send(SignalRequest(next(self._numbers), event.pid, signal.SIGKILL))
                    else:
                        self._started[event.request] = process
                elif isinstance(event, SignalAnswer):
                    self._unsignalled.discard(event.request)
                else:
                    self._end(self.nodes.pop(event.pid), event.code)
                self._changed.notify_all()
        with self._changed:
            self._gone = True
            for process in self.nodes.values():
                self._end(process, -1)
            self._changed.notify_all()

    def _end(self, process: NodeProcess, code: int) -> None:
        process.code = code
        process.ended.set()

    def close(self, timeout_s: float = 15.0) -> None:
        """End the server; it asks running nodes to stop and waits for them."""
        assert self.process.stdin is not None, "it is a pipe"
        with self._changed, contextlib.suppress(BrokenPipeError):  # the server was killed
            self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None, "it is a pipe"
        self.process.stdout.close()

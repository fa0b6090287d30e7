"""The process from which a local cluster's nodes are forked. It imports their code once, so that each node starts in
milliseconds.

Theory of operation. Seven interpreters that import the same modules cost seven times half a second of processor time; one that
forks costs it once. The server has one thread and no event loop, so a fork of it is clean: no lock is held and no gRPC object
exists (gRPC is imported, not used). It reads requests from standard input and writes events to standard output, both as lines of
JSON: it forks and signals nodes on request, and reports their ends. Only the server reaps, and it signals only processes that it
has not reaped, so a signal never reaches a stranger that got the same process id.

A node is a process like any other: a session of its own, its log as standard output and error, and as standard input a pipe that
only the server holds open. When the process that started the server ends, the server's standard input ends. The server then asks
the brokers to stop, which hand over their leaderships while controllers run, then the controllers, and ends with the last of them
and with the mounts of their disks. Nodes that take longer than `PATIENCE_S`, for instance with a slow clock, are killed. When the
server itself is killed, the nodes' pipes close and they stop; the system wakes paused nodes (Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from functools import partial
from typing import NoReturn

import msgspec

from kraftlab.common.exit_codes import FAILED
from kraftlab.config.models import load_any
from kraftlab.config.private_files import PRIVATE_FILE

from . import namespaces, node

PATIENCE_S = 10.0
_PR_SET_PDEATHSIG = 1


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Fork a node, in that network namespace and with that clock file, if given. `request` comes back in the answer. A node that
    `speaks_tls` can have an `introduction`, for the proxies of its links.
    """

    request: int
    role: str
    config: str
    log: str
    namespace: str = ""
    clock: str = ""
    speaks_tls: bool = False
    introduction: bytes = b""


class SignalRequest(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal to a node, unless it has ended. Answered once sent; SIGSTOP, once the node is stopped."""

    request: int
    pid: int
    number: int


class Unmount(msgspec.Struct, frozen=True, tag="unmount"):
    """Unmount these paths, instead of those of former requests, when all nodes have ended. Not answered."""

    paths: tuple[str, ...]


class StartAnswer(msgspec.Struct, frozen=True, tag="started"):
    request: int
    pid: int


class SignalAnswer(msgspec.Struct, frozen=True, tag="signalled"):
    request: int


class ExitNotice(msgspec.Struct, frozen=True, tag="ended"):
    """`code` is the exit code, or the negative number of the signal that ended the process."""

    pid: int
    code: int


Request = Start | SignalRequest | Unmount
Event = StartAnswer | SignalAnswer | ExitNotice

_decode = msgspec.json.Decoder(Request).decode
_encode = msgspec.json.Encoder().encode


class ForkServer:
    """State of the server: its running children. `serve` returns when standard input and all children have ended."""

    def __init__(self) -> None:
        self._alive: dict[int, str] = {}
        """Roles by process id."""
        self._standing: set[int] = set()
        """Stopped children. The system reports a stop once: a second wait for it would never return."""
        self._becoming: dict[int, int] = {}
        """Pipes that end when a forked child has closed everything of the server's; it is not stopped before."""
        self._stopping = ""
        """The role that was asked to stop."""
        self._kill_at = math.inf
        self._death_pipe = os.pipe()
        self._wakeup = os.pipe()
        self._input = b""
        self._mounts: tuple[str, ...] = ()

    def serve(self) -> None:
        for descriptor in self._wakeup:
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._wakeup[0], selectors.EVENT_READ)
            reading = True
            while reading or self._alive:
                for key, _ in selector.select(None if self._kill_at == math.inf else max(0, self._kill_at - time.monotonic())):
                    if key.fd == self._wakeup[0]:
                        os.read(self._wakeup[0], 4096)
                        self._reap()
                    elif not self._read():
                        reading = False
                        selector.unregister(0)
                        self._stop("broker")
                        self._stop_controllers_when_alone()
                if time.monotonic() >= self._kill_at:
                    self._kill_late()
        for path in self._mounts:
            subprocess.run(("umount", path), stderr=subprocess.DEVNULL, check=False)

    def _read(self) -> bool:
        data = os.read(0, 65536)
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            request = _decode(line)
            if isinstance(request, Start):
                self._start(request)
            elif isinstance(request, SignalRequest):
                self._signal(request)
            else:
                self._mounts = request.paths
        return bool(data)

    def _signal(self, request: SignalRequest) -> None:
        if request.pid in self._alive:
            if request.number == signal.SIGSTOP:
                self._wait_until_own(request.pid)
            os.kill(request.pid, request.number)
            if request.number == signal.SIGCONT:
                self._standing.discard(request.pid)
            elif request.number == signal.SIGSTOP and request.pid not in self._standing:
                pid, status = os.waitpid(request.pid, os.WUNTRACED)
                if os.WIFSTOPPED(status):
                    self._standing.add(pid)
                else:
                    self._ended(pid, status)
        self._say(SignalAnswer(request.request))

    def _start(self, request: Start) -> None:
        # Once here instead of in each node.
        node.load(request.role)
        import grpc  # noqa: F401

        import kraftlab.broker.api.group_offsets
        import kraftlab.broker.api.producers
        import kraftlab.gateway.cluster
        import kraftlab.gateway.listener

        if request.speaks_tls:
            import kraftlab.node.listener_tls  # noqa: F401
        gc.freeze()
        ended, end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ended)
            self._become_node(request, end)
        os.close(end)
        self._becoming[pid] = ended
        self._alive[pid] = request.role
        self._say(StartAnswer(request.request, pid))

    def _wait_until_own(self, pid: int) -> None:
        """Wait until a forked node has its own standard streams, and is woken when the server ends; or until it has ended."""
        ended = self._becoming.pop(pid, None)
        if ended is not None:
            os.read(ended, 1)
            os.close(ended)

    def _become_node(self, request: Start, end: int) -> NoReturn:
        code = FAILED
        try:
            os.setsid()
            node.keep_files_private()
            _wake_when_server_ends()
            _call_process(os.path.basename(os.path.dirname(request.config)))
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
            for source, target in ((self._death_pipe[0], 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            for descriptor in (log, *self._death_pipe, *self._wakeup, *self._becoming.values(), end):
                os.close(descriptor)
            if request.namespace:
                namespaces.enter(request.namespace)
            code = node.run(
                partial(load_any, request.config),
                until_stdin_closes=True,
                clock_file=request.clock,
                introduction=request.introduction,
            )
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._alive:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        del self._alive[pid]
        self._wait_until_own(pid)
        self._standing.discard(pid)
        if self._stopping:
            self._stop_controllers_when_alone()
        self._say(ExitNotice(pid, os.waitstatus_to_exitcode(status)))

    def _stop_controllers_when_alone(self) -> None:
        if "broker" not in self._alive.values():
            self._stop("controller")

    def _stop(self, role: str) -> None:
        self._stopping, self._kill_at = role, time.monotonic() + PATIENCE_S
        for pid in self._of(role):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)

    def _kill_late(self) -> None:
        self._kill_at = math.inf
        for pid in self._of(self._stopping):
            os.kill(pid, signal.SIGKILL)

    def _of(self, role: str) -> list[int]:
        return [pid for pid, its in self._alive.items() if its == role]

    def _say(self, event: Event) -> None:
        try:
            os.write(1, _encode(event) + b"\n")
        except BrokenPipeError:
            return


def _wake_when_server_ends() -> None:
    """Wake the node with the server's end: a stopped node would never notice it."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _call_process(name: str) -> None:
    """Let `ps` and `top` show a node by its name, where the system can (Linux)."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(name)


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    gc.disable()
    ForkServer().serve()


if __name__ == "__main__":
    main()

"""System calls of a running node that fail or are delayed, by strace.

Theory of operation. strace stops the node at its system calls and lets chosen ones return an error without being executed, or
begin late; to the node this looks like a failing disk. strace is attached to all threads. It detaches, leaving the node as it
was, on SIGINT or when the node ends. A traced node is slower, since it stops at every system call.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import IO

import trio

from .errors import CannotStrike
from .ledger import Ledger, Process

SYNCS = "fdatasync,fsync,syncfs"
ATTACH_TIMEOUT_S = 5.0


def command(pid: int, injections: Sequence[str]) -> list[str]:
    """`injections` have the format of `strace -e inject=`, such as "fdatasync:error=EIO"."""
    calls = ",".join(injection.partition(":")[0] for injection in injections)
    expressions = [part for injection in injections for part in ("-e", f"inject={injection}")]
    return ["strace", "-f", "-p", str(pid), "-o", "/dev/null", "-e", f"trace={calls}", *expressions]


@asynccontextmanager
async def kept_injected(pid: int, injections: Sequence[str], ledger: Ledger) -> AsyncIterator[None]:
    """Inject failures into the process's system calls. CannotStrike."""
    tracer = start_strace(command(pid, injections))
    assert tracer.stderr is not None, "stderr is a pipe"
    entry: Process | None = None
    try:
        entry = ledger.add_process(tracer.pid, f"strace of {pid}")
        with trio.move_on_after(ATTACH_TIMEOUT_S) as patience:
            failure = await trio.to_thread.run_sync(partial(_until_attached, tracer.stderr), abandon_on_cancel=True)
        if patience.cancelled_caught:
            raise CannotStrike(f"strace did not attach to process {pid} within {ATTACH_TIMEOUT_S:g} s")
        if failure is not None:
            raise CannotStrike(f"strace does not attach to process {pid}: {failure}")
        yield
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_detach, tracer)
        if entry is not None:
            ledger.drop(entry)


def start_strace(words: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except FileNotFoundError:
        raise CannotStrike("strace is not installed; see `kraftlab chaos doctor`") from None


def _until_attached(errors: IO[str]) -> str | None:
    """Return None once strace reports that it is attached, otherwise its last message."""
    line = ""
    for line in errors:
        if "attached" in line:
            return None
    return line.strip() or "strace ended"


def _detach(tracer: subprocess.Popen[str]) -> None:
    tracer.send_signal(signal.SIGINT)
    try:
        tracer.communicate(timeout=ATTACH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.communicate()

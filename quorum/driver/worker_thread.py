"""A thread that does one thing at a time for one task.

Theory of operation. `trio.to_thread.run_sync` serves any number of callers and costs a few thread and task switches each time. A
commit waits for such a hop on two nodes, so it shows. Here caller and thread wake each other through a pipe each way: the thread
sleeps in `read`, the task in `wait_readable`. Starting is synchronous, so work can begin before the caller's own task gets its
turn.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType

import trio

_GO = b"\0"


class WorkerThread:
    """Use as `with WorkerThread(name) as worker:`, then `worker.start(function)` and `await worker.finished()`, in turn."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._function: Callable[[], None] | None = None
        self._failure: BaseException | None = None
        self.is_working = False
        """True if a function was started and has not been waited for."""

    def __enter__(self) -> WorkerThread:
        self._go_reader, self._go_writer = os.pipe()
        self._done_reader, self._done_writer = os.pipe()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the thread. One that still works is left alone: it hangs in the kernel and must not hold up the process."""
        if self.is_working:
            return
        os.close(self._go_writer)
        self._thread.join()
        for descriptor in (self._go_reader, self._done_reader, self._done_writer):
            os.close(descriptor)

    def start(self, function: Callable[[], None]) -> None:
        """Let the thread call `function` at once. Nothing else may be in progress."""
        self._function = function
        self.is_working = True
        os.write(self._go_writer, _GO)

    async def finished(self) -> None:
        """Wait until the started function has ended, or one will have been started and have ended; raise its exception."""
        await trio.lowlevel.wait_readable(self._done_reader)
        os.read(self._done_reader, 1)
        self.is_working = False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def settle(self, timeout_s: float) -> None:
        """Wait for the running function, cancelled or not, at most `timeout_s`; its outcome no longer matters."""
        if self.is_working:
            with trio.CancelScope(shield=True), trio.move_on_after(timeout_s):
                await trio.lowlevel.wait_readable(self._done_reader)
                os.read(self._done_reader, 1)
                self.is_working = False

    def _work(self) -> None:
        while os.read(self._go_reader, 1):
            assert self._function is not None
            try:
                self._function()
            except BaseException as error:
                self._failure = error
            os.write(self._done_writer, _GO)

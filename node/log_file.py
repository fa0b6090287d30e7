"""The file of a node's log, which programs like logrotate may move away."""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import os
import sys
from pathlib import Path


class LogFile(logging.handlers.WatchedFileHandler):
    """A file that is opened again by the next line after it was moved or removed. A line that it does not take goes to standard
    error: a full disk, or a directory that is gone, must not end the node. OSError if it cannot be opened at first.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=_opened)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
            return
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr)


def _opened(path: str, flags: int) -> int:
    """Open a file without waiting: a FIFO that nobody reads is an OSError. Writes wait as usual."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor

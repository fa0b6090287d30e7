"""The file of a node's log, which programs like logrotate may move away."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
from pathlib import Path


class LogFile(logging.handlers.WatchedFileHandler):
    """A file that is opened again by the next line after it was moved or removed. A line that it does not take goes to standard
    error: a full disk, or a directory that is gone, must not end the node. OSError if it cannot be opened at first.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")

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

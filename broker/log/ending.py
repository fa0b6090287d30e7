"""The end of one log after an unexpected error in its background work.

Theory of operation. An error that nobody expected, a bug, may have left anything behind in the log at which it happened, and
nothing elsewhere. So that log answers every later call with LogEnded, its stack is logged, and the replica goes offline like one
in a directory that failed: the controller is informed, and another replica leads. A bug that depends on the records meets every
replica of the partition; then this partition is unavailable, and all others go on. The files stay as they are. The directory no
longer counts as cleanly shut down, so the next start checks the log before it serves the log again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kraftlab.records.errors import LogError

from .partition_log import PartitionLog

logger = logging.getLogger(__name__)


class LogEnded(LogError):
    """An unexpected error has ended `log`; other logs go on."""

    def __init__(self, log: PartitionLog, cause: Exception) -> None:
        super().__init__(
            f"the log {log.name} in {log.log_dir} was ended by an unexpected error, {type(cause).__name__}: {cause}. Its records "
            "are kept: restart the broker, which checks the log and serves it again, and report the stack in its log as a bug"
        )
        self.log = log


@contextmanager
def ending(log: PartitionLog, *expected: type[Exception]) -> Iterator[None]:
    """End `log` if its background work, inside the block, meets an error that is neither a LogError nor `expected`: LogEnded."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (LogError, *expected)):
            raise
        ended = LogEnded(log, error)
        logger.log(logging.ERROR if log.is_open else logging.DEBUG, "%s", ended, exc_info=True)
        log.abandon(ended)
        raise ended from error

"""The end of a node's process: graceful on a signal, with one line on an error that cannot be repaired here."""

from __future__ import annotations

import logging
import resource
import signal
from collections.abc import Awaitable, Callable

import trio

from kraftlab.common.causes import first_cause, only_cause
from kraftlab.common.errors import InvariantViolation
from kraftlab.metadata.codec import UnreadableRecords
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.quorum.core.errors import LogTruncationRefused
from kraftlab.quorum.driver.cluster_generation import discard_copy
from kraftlab.quorum.driver.errors import GenerationOver
from kraftlab.quorum.storage.directory_lock import DirectoryLock
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.wire.transport import ListenError

from .log_lines import show_position
from .service_manager import STOPPING, notify

logger = logging.getLogger("kraftlab.node")

FATAL: tuple[type[BaseException], ...] = (
    StorageError,
    ListenError,
    UnreadableRecords,
    ReplayError,
    InvariantViolation,
    LogTruncationRefused,
    GenerationOver,
    OSError,
)
"""Errors that end any node with one line. Errors that are neither here nor in `also_fatal` are bugs and show their traceback."""


async def run_to_end(
    metadata_log_dir: str, serve: Callable[[], Awaitable[None]], also_fatal: tuple[type[BaseException], ...] = ()
) -> None:
    """Run `serve`, alone on its metadata directory, until it returns. Raise the limit of open files to the system's maximum.

    SystemExit with a message for fatal errors; other errors unchanged.
    """
    fatal = FATAL + also_fatal
    _raise_file_limit()
    try:
        with DirectoryLock(metadata_log_dir):
            await serve()
    except BaseExceptionGroup as group:
        if group.split(fatal)[1] is None:
            raise SystemExit(f"Error: {first_cause(group)}") from None
        raise only_cause(group) from None
    except fatal as error:
        raise SystemExit(f"Error: {error}") from None
    finally:
        show_position(None)


def _raise_file_limit() -> None:
    """Raise the limit to the maximum: a broker keeps many segments open, and an admin connection takes three descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)


async def through_generations(
    serve: Callable[[], Awaitable[None]], identity: LogIdentity, metadata_log_dir: str, *, never_votes: bool = False
) -> None:
    """Run `serve`, again with an empty copy of the metadata whenever an observer's generation of the cluster is over.

    GenerationOver if the directory holds data that a person should look at first; a node that never votes has none.
    """
    while True:
        try:
            await serve()
            return
        except (BaseExceptionGroup, GenerationOver) as error:
            cause = only_cause(error) if isinstance(error, BaseExceptionGroup) else error
            if not isinstance(cause, GenerationOver) or not (cause.is_expendable or never_votes):
                raise
            newer = identity._replace(generation=cause.generation)
        logger.warning(
            "the quorum was forced: this node discards its copy of the metadata in %s and follows generation %d from the start",
            metadata_log_dir,
            newer.generation,
        )
        await trio.to_thread.run_sync(discard_copy, RealFileSystem(), metadata_log_dir, newer)


async def watch_signals(ends: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Set `ends` on SIGTERM or SIGINT. For `nursery.start`."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            logger.info("stopping on %s", signal.Signals(number).name)
            notify(STOPPING)
            ends.set()

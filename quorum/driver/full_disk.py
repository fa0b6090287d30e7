"""Retries for a disk without space, or a process without a free descriptor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

from ..storage.errors import StorageFull
from .environment import Threads

logger = logging.getLogger("kraftlab.quorum")

FULL_DISK_RETRY_S = 0.5

P = ParamSpec("P")
R = TypeVar("R")


async def when_there_is_room(
    threads: Threads, complaint: str, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
) -> R:
    """Return the result of `function`, run in a thread, retrying while it raises StorageFull.

    The first failure logs `complaint` with the reason: it says what cannot be done, and that it is tried again.
    """
    has_complained = False
    while True:
        try:
            return await threads.run(function, *arguments, **options)
        except StorageFull as error:
            if not has_complained:
                logger.error("%s: %s", complaint, error)
            has_complained = True
            await trio.sleep(FULL_DISK_RETRY_S)

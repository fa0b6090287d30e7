"""A disk without room, or a process without a free descriptor, is waited for: what failed for that is tried again."""

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
    """What `function` returns, in a thread, as soon as there is room for what it does. `complaint` is logged once, with the
    reason, if there is none at first: it says what cannot be done, and that it will be tried again.
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

"""Disk work on the event loop, one piece after the other: in virtual time, and all on the thread that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from ..log.disks import Disks
from ..log.errors import LogDirFailed

STEP_S = 0.001
"""What a piece of work takes."""


class InlineDisks(Disks):
    """A broker's."""

    async def run(self, log_dir: Path | None, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `work` returns or raises."""
        await trio.sleep(STEP_S)
        try:
            return work(*args, **kwargs)
        except LogDirFailed as error:
            self.failed(error)
            raise

"""What the active controller does by itself from time to time.

A task is an operation like any other, which also answers whether it has more to do; then it runs again almost at once, so that
requests get their turn in between. Tasks run on the active controller only, first one interval after it became active.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..partitions.leader_elections import balance_leaders, elect_uncleanly
from .state import Context, ControllerState, Outcome, Settings

AGAIN_MS = 10
"""The pause before a task that has more to do goes on."""
RETRY_MS = 60_000
"""The pause after a task that failed, at most."""


class BackgroundTask(NamedTuple):
    """`follows_configs`: it also runs when a configuration has changed."""

    name: str
    interval_ms: int
    run: Callable[[ControllerState, Context], Outcome[bool]]
    follows_configs: bool = False

    def pause_ms(self, has_more: bool, has_failed: bool) -> int:
        """How long until the next run, after one that ended so."""
        if has_failed:
            return min(self.interval_ms, RETRY_MS)
        return AGAIN_MS if has_more else self.interval_ms


def background_tasks(settings: Settings) -> tuple[BackgroundTask, ...]:
    """The tasks of a controller with these settings."""
    tasks = [BackgroundTask("elect uncleanly", settings.unclean_election_interval_ms, elect_uncleanly, follows_configs=True)]
    if settings.balance_interval_ms > 0:
        tasks.append(BackgroundTask("balance leaders", settings.balance_interval_ms, balance_leaders))
    return tuple(tasks)

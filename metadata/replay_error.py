"""The error of records that do not fit."""

from __future__ import annotations

COMPARE_LOGS = "this node must stop; compare its log with another controller's, and refill it if they differ"


class ReplayError(ValueError):
    """A record does not fit the state that it is replayed on. The node must stop: its state or its log is wrong."""

    def __init__(self, reason: str, next_step: str = COMPARE_LOGS) -> None:
        self.next_step = next_step
        super().__init__(reason)

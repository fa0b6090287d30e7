"""The wait for a controlled shutdown: what counts as progress, how long the broker waits, and what it says meanwhile.

Theory of operation. The controller gives the broker's leaderships to other brokers, and allows the stop once every active broker
has applied that. Both take longer the more partitions there are. So the wait goes on while the controller shows that it works: it
answers a heartbeat, if only to say that it is busy with an earlier change, or the metadata grows. The broker stops without leave
after a time without either, since there may be no controller, and after Kafka's five minutes in any case. Leaderships that it
still has then move when the controller fences it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

logger = logging.getLogger("kraftlab.broker.lifecycle")

LONGEST_S = 300.0
"""Bound of the whole wait, as Kafka's broker has. Neither has a config for it."""
SILENCE_S = 5.0
"""Shortest time without progress after which the broker stops without leave."""
LOG_INTERVAL_S = 10.0


class ControlledShutdown:
    """One wait, from the moment it is made. `leaderships` counts the partitions that the broker leads.

    A busy controller may leave one heartbeat unanswered, for an interval, and answers the next one after half an interval.
    """

    def __init__(self, heartbeat_interval_s: float, published_offset: Callable[[], int], leaderships: Callable[[], int]) -> None:
        self._published_offset = published_offset
        self._leaderships = leaderships
        self._silence_s = max(SILENCE_S, 2 * heartbeat_interval_s)
        self._begun_s = self._progress_s = trio.current_time()
        self._log_s = self._begun_s + LOG_INTERVAL_S
        self._offset = published_offset()
        logger.info("asks the controller for a controlled shutdown: %s", self._remaining())

    @property
    def deadline_s(self) -> float:
        """Time of `trio.current_time` at which the broker stops without leave, unless there is progress before."""
        return min(self._begun_s + LONGEST_S, self._progress_s + self._silence_s)

    def controller_works(self) -> None:
        """Note an answer of the active controller."""
        self._progress_s = trio.current_time()

    def is_over(self) -> bool:
        """Return True if the broker has waited long enough, and log the reason. Note the growth of the metadata."""
        now_s, offset = trio.current_time(), self._published_offset()
        if offset > self._offset:
            self._offset, self._progress_s = offset, now_s
        if now_s < self.deadline_s:
            if now_s >= self._log_s:
                self._log_s = now_s + LOG_INTERVAL_S
                logger.info("still waits for its controlled shutdown, for %.0f s: %s", now_s - self._begun_s, self._remaining())
            return False
        is_silent = self._progress_s + self._silence_s < self._begun_s + LONGEST_S
        reason = f"no controller has answered for {self._silence_s:g} s" if is_silent else f"{LONGEST_S:g} s are over"
        logger.warning("stops without the controller's leave while it leads %d partitions: %s", self._leaderships(), reason)
        return True

    def _remaining(self) -> str:
        count = self._leaderships()
        if count:
            return f"the leadership of {count} partitions has to move to other brokers"
        return "this broker leads no partition, and the other brokers have to learn that"

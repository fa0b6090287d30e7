"""L7: a leader without fetches from a majority resigns, even if no other leader is elected (KIP-835's check quorum).

Every LOOK_US, each leader that is not paused is judged by its own clock and its own record of fetches. A period can end up to two
timeouts after the earliest fetch that counted for it, and SLACK_MS is added. A period begins again if the clock has jumped since
the last look. A process whose pause has just ended is not judged, since its timer has not fired yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraftlab.quorum.core.leader import Leader

from .invariants import Violation
from .observed import ObservedProcess, ObservedWorld

LOOK_US = 200_000
SLACK_MS = 200


class _Reign(NamedTuple):
    """The epoch and voters that a process leads, and the start of the period. At the last look its clock was `ahead_ms` ahead of
    the world's.
    """

    epoch: int
    voters: tuple[int, ...]
    since_ms: int
    ahead_ms: int


class CheckQuorum:
    """Judges the leaders of a world from `start` on."""

    def __init__(self, world: ObservedWorld, after: Callable[[int, Callable[[], None]], None]) -> None:
        self._world = world
        self._after = after
        self._reigns: dict[ObservedProcess, _Reign] = {}

    def start(self) -> None:
        self._after(LOOK_US, self._look)

    def _look(self) -> None:
        world = self._world
        self._after(LOOK_US, self._look)
        reigns = {process: self._reign(process) for process in world.leaders}
        self._reigns = reigns
        for process, reign in reigns.items():
            if process.machine.paused_until_us < world.now_us:
                self._judge(process, reign)

    def _reign(self, process: ObservedProcess) -> _Reign:
        state = process.quorum.state
        voters = tuple(sorted(state.voters)) if isinstance(state, Leader) else ()
        known, now_ms = self._reigns.get(process), process.machine.now_ms()
        ahead_ms = now_ms - self._world.now_us // 1_000
        if known is not None and (known.epoch, known.voters) == (state.epoch, voters):
            has_jumped = abs(ahead_ms - known.ahead_ms) > SLACK_MS
            return known._replace(ahead_ms=ahead_ms, since_ms=now_ms if has_jumped else known.since_ms)
        return _Reign(state.epoch, voters, now_ms, ahead_ms)

    def _judge(self, process: ObservedProcess, reign: _Reign) -> None:
        state, membership = process.quorum.state, process.quorum.membership
        needed = membership.majority - membership.is_voter
        if not isinstance(state, Leader) or needed <= 0 or not process.raft.config.check_quorum:
            return
        fetches = sorted((progress.last_fetch_ms for progress in state.voters.values()), reverse=True)
        followed_ms = max(reign.since_ms, fetches[needed - 1] if needed <= len(fetches) else 0)
        silent_ms = process.machine.now_ms() - followed_ms
        if silent_ms > 2 * process.raft.config.check_quorum_timeout_ms + SLACK_MS:
            raise Violation(f"L7 n{process.node_id} leads epoch {state.epoch}, and no majority has fetched for {silent_ms} ms")

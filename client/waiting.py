"""`CallTime`: a call that gets no answer, and what to say about it.

A call that waits for 3 s asks the voters for a sign of life, once, in a thread of its own, and reports if no majority answers or
none leads. A failover takes 0.2 s, so that short interruptions are never reported. The call itself goes on until its deadline.
Its error then says which voters are silent, since the faults of single nodes name a controller that has died rather than the
cause.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType

from kraftlab.common.errors import ApiError, ErrorCode

from .attempts import is_read
from .errors import ClusterUnreachable, OutcomeUnknown
from .quorum_probe import NONE_LEADS

PATIENCE_S = 3.0
_START = (
    "start the controllers that are down (of a local cluster: kraftlab cluster restart NODE, or kraftlab up --data DIR again); "
    "docs/quorum-operations.md says what to do if they are lost for good"
)
_ELECT = (
    "an election may still end; if none does, look into the controllers' logs: they may not reach each other, or their disks or "
    "clocks may be too slow"
)
_OF_A_LOST_QUORUM = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})

Probe = Callable[[], str | None]
"""Returns a finding such as "1 of 3 voters answers: no majority", None without one. It may raise anything."""


class CallTime:
    """The time of one call, as a context manager. `report` gets the finding while the call waits; without it the voters are asked
    only when the call fails.
    """

    def __init__(self, api: str, probe: Probe, report: Callable[[str], None] | None) -> None:
        self._api = api
        self._probe = probe
        self._report = report
        self._started = time.monotonic()
        self._is_over = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> CallTime:
        if self._report is not None:
            self._timer = threading.Timer(PATIENCE_S, self._look)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        waited_s = time.monotonic() - self._started
        is_about_the_quorum = isinstance(error, ClusterUnreachable) or (
            isinstance(error, ApiError) and error.code in _OF_A_LOST_QUORUM
        )
        if not is_about_the_quorum or waited_s < PATIENCE_S:
            return
        finding = self._finding()
        if finding is not None:
            raise _about(error, finding, self._api, waited_s) from error

    def _look(self) -> None:
        finding = self._finding()
        if finding is not None and self._report is not None and not self._is_over:
            self._report(finding)

    def _finding(self) -> str | None:
        """Return what the voters' answers show; a probe that fails has no finding."""
        with contextlib.suppress(Exception):
            return self._probe()
        return None


def _about(error: BaseException | None, finding: str, api: str, waited_s: float) -> Exception:
    """Return the error of a call for a finding about the voters. An unknown outcome of a change stays unknown."""
    advice = _ELECT if NONE_LEADS in finding else _START
    if isinstance(error, ApiError) and is_read(api):
        return ApiError(error.code, f"{finding}; {api} was not answered within {waited_s:.1f} s; {advice}")
    if isinstance(error, OutcomeUnknown):
        text = f"{finding}; whether {api} was carried out is unknown after {waited_s:.1f} s; {advice}"
        return OutcomeUnknown(error.code, text, error.offset)
    if isinstance(error, ApiError):
        return ApiError(error.code, f"{finding}; {api} was not carried out within {waited_s:.1f} s; {advice}")
    return ClusterUnreachable(f"{finding}; no node could answer {api} within {waited_s:.1f} s; {advice}")

"""What each fault did to clients: how long nothing worked, and when it worked again.

Pure. "Worked" is an operation that ended as `ok`, whichever. An outage is the time between two of them in a row, or from the
begin of the run to the first, cut to the time of the fault.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ..fault_plan import Strike
from ..history import OK, Op


class Effect(msgspec.Struct, frozen=True):
    """Of one strike; nanoseconds, and `ok` operations per second in as long a time before, during and after. None: there was no
    such time, or nothing worked any more.
    """

    strike: Strike
    longest_outage_ns: int
    first_ok_after_ns: int | None
    ok_rate_before: float | None
    ok_rate_during: float | None
    ok_rate_after: float | None


def effects(ops: Iterable[Op], strikes: Iterable[Strike], ended_ns: int) -> tuple[Effect, ...]:
    """One for each strike that could be done, by the time of its begin."""
    worked = sorted(op.ended_ns for op in ops if op.outcome == OK)
    done = [strike for strike in strikes if not strike.error]
    return tuple(_effect(worked, strike, ended_ns) for strike in sorted(done, key=lambda strike: strike.begin_ns))


def longest_outage_ns(worked: Sequence[int], begin_ns: int, end_ns: int) -> int:
    """The longest time within these bounds without any of the sorted times `worked`."""
    inside = worked[bisect_left(worked, begin_ns) : bisect_right(worked, end_ns)]
    edges = [begin_ns, *inside, end_ns]
    return max(later - earlier for earlier, later in pairwise(edges))


def _effect(worked: Sequence[int], strike: Strike, ended_ns: int) -> Effect:
    end_ns = ended_ns if strike.end_ns is None else strike.end_ns
    after = bisect_left(worked, end_ns)
    length_ns = end_ns - strike.begin_ns
    return Effect(
        strike,
        longest_outage_ns(worked, strike.begin_ns, end_ns),
        worked[after] - end_ns if strike.end_ns is not None and after < len(worked) else None,
        _rate(worked, max(strike.begin_ns - length_ns, 0), strike.begin_ns),
        _rate(worked, strike.begin_ns, end_ns),
        _rate(worked, end_ns, min(end_ns + length_ns, ended_ns)),
    )


def _rate(worked: Sequence[int], begin_ns: int, end_ns: int) -> float | None:
    if end_ns <= begin_ns:
        return None
    return (bisect_left(worked, end_ns) - bisect_left(worked, begin_ns)) * 1e9 / (end_ns - begin_ns)

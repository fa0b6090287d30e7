"""Progress: plain writes and reads all the time, and the longest time without an answer. The verdict is one of liveness.

The operations are those of `registers` on values. Their answers are checked as well, but the point is their time: the longest
time without a success, per kind of fault, and from the end of the faults to the first success.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..checkers.availability import Availability
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..workload import Checker, Options, Workload
from . import registers

RECOVERY_MAX_S = 10.0


def workload() -> Workload:
    return Workload(
        "availability",
        registers.RegisterClient,
        registers.values,
        registers.final_of_values,
        _checkers,
        registers.setup,
        summary="time without successful operations around every fault and after the last one",
    )


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats(),
        Availability(RECOVERY_MAX_S),
        Witness(registers.RegistersFold, local_reads=frozenset({"peek"})),
    )

"""Decide whether the history of one object is linearizable, by two searches in turn.

The depth-first search is fast on histories that are legal, just-in-time linearization on those that are not. Each has a short try
before either has a long one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import depth_first, just_in_time
from .calls import Model, Operation

STEPS_MAX = 2_000_000
"""Steps of the model for the longer try of each search."""


class Decision(NamedTuple):
    """The result of both searches. `legal` None: both ended undecided. `algorithm` ("wgl", "jit") decided, after `steps` steps
    of the model in all tries.
    """

    legal: bool | None
    calls: int
    steps: int
    algorithm: str


def decide(calls: Sequence[Operation], model: Model[object], steps_max: int = STEPS_MAX) -> Decision:
    """Search one object's history for an order that the model allows."""
    steps = 0
    for budget in (steps_max // 16, steps_max):
        by_depth = depth_first.check(calls, model, steps_max=budget)
        steps += by_depth.steps
        if by_depth.legal is not None:
            return Decision(by_depth.legal, len(calls), steps, "wgl")
        by_returns = just_in_time.check(calls, model, steps_max=budget)
        steps += by_returns.steps
        if by_returns.legal is not None:
            return Decision(by_returns.legal, len(calls), steps, "jit")
    return Decision(None, len(calls), steps, "jit")

"""The limits of a hunt by seeds of the simulators."""

from __future__ import annotations

from collections.abc import Callable

from ..options import SimulationOptions

QUICK_SEEDS = 40


class Seeds:
    """One of `rules` must break within `most` seeds.

    `faults` limits the faults that may strike, for bugs that are rare among all of them. `weather` changes the options that a
    seed draws, for bugs that need a certain world.
    """

    def __init__(
        self,
        *rules: str,
        most: int = QUICK_SEEDS,
        faults: tuple[str, ...] | None = None,
        weather: Callable[[SimulationOptions], SimulationOptions] | None = None,
    ) -> None:
        self.rules = rules
        self.most = most
        self.faults = faults
        self.weather = weather

    @property
    def is_quick(self) -> bool:
        """True if the hunt is short enough for every test run."""
        return self.most <= QUICK_SEEDS

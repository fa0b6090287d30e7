"""What a planted bug is, and how it is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

QUICK_SEEDS = 40


class Mutant(NamedTuple):
    """`owner.attribute` becomes what `make` gives for the original.

    `faults` limits what may strike, for bugs that are rare in a swarm of everything, and `weather` makes a seed's world one in
    which they are not; `rules` are the invariants that may see it; it must be found within `seeds_max` seeds. `refine`: only
    the model sees it (reference/), before anything comes of it.
    """

    name: str
    about: str
    owner: object
    attribute: str
    make: Callable[[Any], Any]
    rules: tuple[str, ...] = ()
    seeds_max: int = QUICK_SEEDS
    faults: tuple[str, ...] | None = None
    weather: Callable[[Any], Any] | None = None
    refine: bool = False

    @property
    def is_quick(self) -> bool:
        """Found often enough to be hunted whenever tests run."""
        return self.seeds_max <= QUICK_SEEDS


class MutantDoesNotApply(Exception):
    """The code that a mutant replaces is not there any more: the mutant has to follow it."""


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[None]:
    """The bug is in the code inside the block, and gone after it."""
    if mutant is None:
        yield
        return
    if mutant.attribute not in vars(mutant.owner):
        raise MutantDoesNotApply(f"{mutant.name}: {mutant.owner!r} has no {mutant.attribute} of its own")
    original = vars(mutant.owner)[mutant.attribute]
    setattr(mutant.owner, mutant.attribute, mutant.make(original))
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.attribute, original)

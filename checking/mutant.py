"""Planted bugs: the row that describes one, how it gets into the code under test, and the hunt for it.

Theory of operation. A checker that has never failed proves nothing, so bugs are planted, and the checkers must find them. A
`Mutant` replaces one function or table of the code under test from outside, while it is `planted`. Production code has no switch
for it. A mutant whose target no longer exists raises MutantDoesNotApply. Each room keeps its mutants in a `Table`. A row
of it is a decorated function:

    @MUTANTS.row(Outbox, "put", Seeds("S17"))
    def vote_before_store(put: Callable[..., bool], self: Outbox, message: Send | Reply) -> bool:
        \"""A granted vote leaves before it is stored.\"""
        return isinstance(message, Reply) or put(self, message)

The function's name is the mutant's id and its docstring says what is wrong. While the mutant is planted, the function is called
in the place of the target, with the original as its first argument. `hunt` makes one attempt after the other until a rule breaks:
attempts are seeds for a simulator and crash images for a disk. The number of attempts measures the harness that makes them.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, Generic, NamedTuple, TypeVar

Limits = TypeVar("Limits")
Attempt = TypeVar("Attempt")
Patch = TypeVar("Patch", bound=Callable[..., object])


class MutantDoesNotApply(Exception):
    """The code that a mutant replaces has changed, and the mutant must change as well."""


class Mutant(NamedTuple, Generic[Limits]):
    """A planted bug: `patch` takes the original `attribute` of each of `owners` and returns its replacement. `why` describes the
    bug, and `limits` limit a room's hunt for it.
    """

    id: str
    owners: tuple[object, ...]
    attribute: str
    patch: Callable[[object], object]
    why: str
    limits: Limits


class Table(dict[str, Mutant[Limits]]):
    """The mutants of a room by id, in the order in which they are written."""

    def row(self, owner: object, attribute: str, limits: Limits, *, also: tuple[object, ...] = ()) -> Callable[[Patch], Patch]:
        """Decorate the function that replaces `owner.attribute`. `also` are other modules that have imported it."""

        def add(patch: Patch) -> Patch:
            why = (patch.__doc__ or "").removesuffix(".")
            self.add(patch.__name__.replace("_", "-"), (owner, *also), attribute, partial(_calling, patch), why, limits)
            return patch

        return add

    def add(
        self, id: str, owners: tuple[object, ...], attribute: str, patch: Callable[[Any], Any], why: str, limits: Limits
    ) -> None:
        assert id not in self, f"two mutants are called {id}"
        assert why, f"the docstring of {id} says what is wrong"
        self[id] = Mutant(id, owners, attribute, patch, why[0].lower() + why[1:], limits)


def _calling(patch: Callable[..., Any], original: Any) -> Any:
    """Return a function or property that calls `patch` with the original first, or the patched value of a value."""
    if isinstance(original, property):
        return property(_calling(patch, original.fget))
    if not callable(original):
        return patch(original)

    @wraps(original)
    def mutated(*arguments: Any, **named: Any) -> Any:
        return patch(original, *arguments, **named)

    return mutated


@contextmanager
def planted(*mutants: Mutant[Any] | None) -> Iterator[None]:
    """Plant the mutants for the length of the block. MutantDoesNotApply."""
    with ExitStack() as stack:
        for mutant in filter(None, mutants):
            for owner in mutant.owners:
                if mutant.attribute not in vars(owner):
                    raise MutantDoesNotApply(f"{mutant.id}: {owner!r} has no {mutant.attribute} of its own")
                original = vars(owner)[mutant.attribute]
                setattr(owner, mutant.attribute, mutant.patch(original))
                stack.callback(setattr, owner, mutant.attribute, original)
        yield


class Shown(NamedTuple):
    """The outcome of one attempt: the rule that broke, and its checker's text; both are "" if no rule broke. `attempts` is the
    number of smaller attempts in this one, and `steps` the number of steps of the simulator, 0 if there is none.
    """

    rule: str = ""
    words: str = ""
    attempts: int = 1
    steps: int = 0


class Finding(NamedTuple):
    """The outcome of a hunt. If the mutant was `found`, the last of `attempts` showed it. `found` None: this machine cannot hunt
    it, and `words` says why.
    """

    id: str
    found: bool | None
    attempts: int = 0
    steps: int = 0
    rule: str = ""
    words: str = ""
    seconds: float = 0.0


def processor_s() -> float:
    """Processor time of this process, and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def hunt(
    id: str,
    attempts: Iterable[Attempt],
    play: Callable[[Attempt], Shown],
    *,
    budget_s: float = math.inf,
    clock: Callable[[], float] = processor_s,
) -> Finding:
    """Make attempts until one breaks a rule, until there are no more, or until `clock` says that the budget is spent.

    At least one attempt is made. The mutant must be planted, or `play` plants it.
    """
    begun, made, steps, shown = clock(), 0, 0, Shown()
    for attempt in attempts:
        shown = play(attempt)
        made += shown.attempts
        steps += shown.steps
        if shown.rule or clock() - begun >= budget_s:
            break
    return Finding(id, bool(shown.rule), made, steps, shown.rule, shown.words, clock() - begun)

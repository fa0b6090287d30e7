"""Deliberate bugs, to see that the simulator finds them. Each replaces one attribute of the code under test while it is planted.

A checker that has never failed proves nothing; these show that it can. The bugs are the field's classics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Mutant(NamedTuple):
    """`owner.attribute` becomes `replacement`."""

    name: str
    about: str
    owner: object
    attribute: str
    replacement: object


MUTANTS: dict[str, Mutant] = {}


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[None]:
    """The bug is in the code inside the block, and gone after it."""
    if mutant is None:
        yield
        return
    original = vars(mutant.owner)[mutant.attribute]
    setattr(mutant.owner, mutant.attribute, mutant.replacement)
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.attribute, original)

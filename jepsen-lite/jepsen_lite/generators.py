"""What is asked next, as pure data: generators are values, and asking one gives an invocation and the generator that follows.

In the manner of Jepsen: `next(context)` answers with an invocation for the process that is free, with `Pending` if there is one
only later, or with None when there will be none any more. Nothing here reads a clock or rolls a die of its own: time, the free
process and chance come with the context.
"""

from __future__ import annotations

import random
from typing import NamedTuple, Protocol


class Invocation(NamedTuple):
    """What is to be done."""

    f: str
    key: str = ""
    value: object = None


class Context(NamedTuple):
    """When and for whom an invocation is asked. `process` is free, `worker` its place among the `workers`."""

    now_ns: int
    process: int
    worker: int
    workers: int
    random: random.Random


class Pending(NamedTuple):
    """Nothing yet; ask again at `until_ns`, or when another operation has ended if that is None."""

    until_ns: int | None = None


class Generator(Protocol):
    """Immutable. What it answers goes with the generator that is to be asked next time."""

    def next(self, context: Context) -> tuple[Invocation | Pending, Generator] | None: ...

"""Several workloads on one cluster at once: none affects the results of another.

The parts are whole workloads with their own clients and random generators. Their operations have the part's name as a prefix
("topics.create"), and their checkers see only those, with the whole log. Nodes take snapshots all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ..checkers.stats import Stats
from ..generators import Invocation, Source, mapped, mix
from ..history import Op
from ..workload import Checker, Client, Completion, Options, Port, Workload
from . import brokers, exactly_once, list_append, producer_ids, reassignments, registers, snapshot_reads, topics
from .scoped_checkers import ScopedChecker

PARTS: dict[str, tuple[Callable[[], Workload], float]] = {
    "registers": (registers.workload, 6),
    "topics": (topics.workload, 4),
    "reassignments": (reassignments.workload, 3),
    "brokers": (brokers.workload, 2),
    "exactly-once": (exactly_once.workload, 4),
    "snapshot-reads": (snapshot_reads.workload, 4),
    "list-append": (list_append.workload, 4),
    "producer-ids": (producer_ids.workload, 1),
}
"""Name → function that makes it, and its share of the operations."""


def workload() -> Workload:
    return Workload(
        "soak",
        SoakClient,
        _generator,
        _final,
        _checkers,
        _setup,
        properties=snapshot_reads.SNAPSHOTS,
        summary=f"{', '.join(PARTS)} at once on one cluster",
    )


def _options_of(options: Options, part: str) -> Options:
    """Return the options of a part: its own seed, so that no two parts share random numbers or client ids, and its share of the
    rate.
    """
    share = PARTS[part][1] / sum(weight for _, weight in PARTS.values())
    return msgspec.structs.replace(options, seed=f"{options.seed}/{part}", rate=options.rate * share)


def _named(part: str, source: Source) -> Source:
    return mapped(lambda invocation: invocation._replace(f=f"{part}.{invocation.f}"), source)


def _generator(options: Options) -> Source:
    sources = [_named(part, make().generator(_options_of(options, part))) for part, (make, _) in PARTS.items()]
    return mix(*sources, weights=[weight for _, weight in PARTS.values()])


def _final(options: Options) -> Source:
    finals = [(part, make().final) for part, (make, _) in PARTS.items()]
    return [_named(part, final(_options_of(options, part))) for part, final in finals if final is not None]


async def _setup(options: Options, port: Port) -> None:
    for part, (make, _) in PARTS.items():
        setup = make().setup
        if setup is not None:
            await setup(_options_of(options, part), port)


class SoakClient:
    """The client of one process: a client of each part."""

    def __init__(self, options: Options, process: int) -> None:
        self._clients: dict[str, Client] = {}
        self._make = partial(self._made, options, process)

    def _made(self, options: Options, process: int, part: str) -> Client:
        return PARTS[part][0]().client(_options_of(options, part), process)

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        part, _, f = invocation.f.partition(".")
        if part not in self._clients:
            self._clients[part] = self._make(part)
        return await self._clients[part].invoke(invocation._replace(f=f), port)


def _checkers(options: Options) -> Sequence[Checker]:
    """Return the checkers of the parts, except `Stats`: a part may be too short for every kind of operation to succeed."""
    return [
        ScopedChecker(checker, partial(_of_part, part), f"{part}: {checker.name}")
        for part, (make, _) in PARTS.items()
        for checker in make().checkers(_options_of(options, part))
        if not isinstance(checker, Stats)
    ]


def _of_part(part: str, op: Op) -> Op | None:
    prefix = f"{part}."
    return msgspec.structs.replace(op, f=op.f.removeprefix(prefix)) if op.f.startswith(prefix) else None

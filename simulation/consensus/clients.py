"""Clients of the simulated cluster: each appends to one of a few lists or reads it, one call after the other.

The lists are in the log: an append is a batch, and a read is a linearizable read at a process that believes to lead. A call ends
as done, as refused (it certainly did nothing) or as unknown: an append whose leader fell, or that takes longer than a client
waits, can have happened or can still happen. The content of the lists decides when the cluster has come together: every
acknowledged append is in them (S15), and the whole history is linearizable, list by list (S16; checking/depth_first.py). This
judges the clients' view, without epochs and offsets; the checkers in invariants.py judge the same run from within.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, NamedTuple

import msgspec

from kraftlab.checking.calls import NEVER, Operation, by_key
from kraftlab.checking.depth_first import check
from kraftlab.checking.models import AppendModel, digest
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch

from .cluster import Cluster
from .invariants import Checker, Violation
from .observed import ObservedProcess
from .process import SimulatedProcess
from .state_machine import FrozenHash, HashingStateMachine, SimulatedStateMachine

LISTS = 3
PATIENCE_US = 2_000_000
"""Time after which a client takes the outcome of a call for unknown, and goes on."""
CALLS_MAX = 500
"""Maximum number of calls of a seed. The cost of checking a history grows with it."""
SEARCH_STEPS_MAX = 200_000
VALUES_PER_BATCH = 16
"""Number of values in a batch of a snapshot."""
_BODY_BYTES = 9
_APPEND_MARK = 0xCD


def append_body(value: int, key: int) -> bytes:
    """Return the body of a batch with two records: the value and the list."""
    return b"\x92\xce" + value.to_bytes(4, "big") + b"\xcd" + key.to_bytes(2, "big")


class LoadedLists(NamedTuple):
    """The content of a snapshot: the position of the chain, and the lists."""

    position: tuple[int, int]
    lists: list[list[int]]


class FrozenLists:
    """A frozen state: the chain's position, then the lists with a few values in each batch."""

    def __init__(self, position: FrozenHash, lists: list[list[int]]) -> None:
        self._position = position
        self._values = [(key, value) for key, values in enumerate(lists) for value in values]

    def batches(self) -> Iterator[tuple[bytes, int]]:
        yield from self._position.batches()
        for start in range(0, len(self._values), VALUES_PER_BATCH):
            values = self._values[start : start + VALUES_PER_BATCH]
            yield msgspec.msgpack.encode(values), len(values)


class ListsStateMachine(HashingStateMachine):
    """The state machine of the lists. Other records in the log only enter the hash."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[list[int]] = [[] for _ in range(LISTS)]
        self._digests = [0] * LISTS

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        await super().apply(batches, high_watermark)
        for *_, body in batches:
            if len(body) == _BODY_BYTES and body[6] == _APPEND_MARK:
                key, value = int.from_bytes(body[7:], "big"), int.from_bytes(body[2:6], "big")
                self.lists[key].append(value)
                self._digests[key] = digest(self._digests[key], value)

    def freeze(self) -> FrozenLists:
        return FrozenLists(super().freeze(), [list(values) for values in self.lists])

    def read_snapshot(self, bodies: Iterable[bytes]) -> LoadedLists:
        first, *others = bodies
        lists: list[list[int]] = [[] for _ in range(LISTS)]
        for body in others:
            for key, value in msgspec.msgpack.decode(body, type=list[tuple[int, int]]):
                lists[key].append(value)
        return LoadedLists(super().read_snapshot([first]), lists)

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: LoadedLists) -> None:
        await super().load_snapshot(position, append_time_ms, state.position)
        self.lists = state.lists
        self._digests = [reduce(digest, values, 0) for values in self.lists]

    def read(self, key: int) -> tuple[int, int]:
        """Return length and digest of a list."""
        return len(self.lists[key]), self._digests[key]


def lists_state_machine(node_id: int) -> SimulatedStateMachine:
    return ListsStateMachine()


class Call(msgspec.Struct):
    """A call that has begun. `process` got the call; an append of it ends at `end_offset` of the log."""

    client: int
    key: int
    value: int | None
    invoked_us: int
    process: Any
    end_offset: int = -1


class Clients(Checker):
    """All clients of one world, and their history."""

    def __init__(self, world: Cluster) -> None:
        super().__init__(world)
        self._world = world
        self._random = world.options.random("clients")
        self._next_value = 1
        self._calls = 0
        self.current: list[Call | None] = [None] * world.options.clients
        self._appends: dict[tuple[ObservedProcess, int, int], Call] = {}
        """Appends by process, end offset and crc: the same process can lead again later, and write another batch there."""
        self.history: list[Operation] = []
        self.acknowledged: list[int] = []
        self.unknown = 0
        self.is_search_complete = True

    def start(self) -> None:
        for client in range(self._world.options.clients):
            self._call_later(client)

    def _call_later(self, client: int) -> None:
        self._world.after(1 + int(self._random.random() * 2 * self._world.options.client_interval_us), self._call, client)

    def _call(self, client: int) -> None:
        if self._world.is_healed or self._calls >= CALLS_MAX:
            return
        asked = self._world.leaders
        if not asked:
            self._call_later(client)
            return
        self._calls += 1
        process = asked[int(self._random.random() * len(asked))]
        call = Call(client, int(self._random.random() * LISTS), None, self._world.now_us, process)
        self.current[client] = call
        self._world.after(PATIENCE_US, self._give_up, call)
        if self._random.random() < 0.5:
            process.read(lambda is_served: self._read_done(call, is_served))
        else:
            self._append(call, process)

    def _append(self, call: Call, process: SimulatedProcess) -> None:
        call.value = self._next_value
        self._next_value += 1
        end_before = process.raft.log_end_offset
        if not process.propose(append_body(call.value, call.key), 2):
            if not process.dead and process.raft.log_end_offset == end_before:
                self._end(call, None)
            return
        call.end_offset = end_before + 2
        if process.applying.applied_offset >= call.end_offset:
            self._acknowledge(call)
        else:
            self._appends[process, call.end_offset, process.local_log.view.crc_at(call.end_offset)] = call

    def on_acknowledged(self, process: ObservedProcess, base_offset: int, end_offset: int, crc: int) -> None:
        call = self._appends.pop((process, end_offset, crc), None)
        if call is not None:
            self._acknowledge(call)

    def _acknowledge(self, call: Call) -> None:
        assert call.value is not None
        if self.current[call.client] is not call:
            return
        self.acknowledged.append(call.value)
        self._end(call, Operation(call.key, call.invoked_us, self._world.now_us, ("append", call.value)))

    def _read_done(self, call: Call, is_served: bool) -> None:
        if self.current[call.client] is not call:
            return
        state_machine = call.process.state_machine
        if not is_served:
            self._end(call, None)
            return
        self._end(call, Operation(call.key, call.invoked_us, self._world.now_us, ("read",), state_machine.read(call.key)))

    def _give_up(self, call: Call) -> None:
        if self.current[call.client] is not call:
            return
        self.unknown += 1
        unknown = None if call.value is None else Operation(call.key, call.invoked_us, NEVER, ("append", call.value))
        self._end(call, unknown)

    def _end(self, call: Call, operation: Operation | None) -> None:
        """End the call. A call without an operation is left out of the history, since it changed nothing."""
        if operation is not None:
            self.history.append(operation)
        self.current[call.client] = None
        self._call_later(call.client)

    # The end

    def unanswered(self) -> str | None:
        """Describe a call that should have its answer: its process still leads, and its batch is applied. None: no such call."""
        for call in self.current:
            if call is None or call.process.dead or not call.process.raft.is_leader:
                continue
            if call.value is None or call.end_offset <= call.process.applying.applied_offset:
                return f"client {call.client} waits for n{call.process.node_id} since {call.invoked_us} us"
        return None

    def judge(self, process: SimulatedProcess) -> None:
        """Judge the history by the final lists, which `process` has. Violation of S15 or S16."""
        state_machine = process.state_machine
        assert isinstance(state_machine, ListsStateMachine)
        for call in self.current:
            if call is not None and call.value is not None:
                self.history.append(Operation(call.key, call.invoked_us, NEVER, ("append", call.value)))
        there = {value for values in state_machine.lists for value in values}
        lost = [value for value in self.acknowledged if value not in there]
        if lost:
            raise Violation(f"S15 acknowledged and not in the lists at the end: {lost}")
        for key, operations in by_key(self.history).items():
            assert isinstance(key, int)
            verdict = check(_that_matter(operations, there), AppendModel(state_machine.lists[key]), steps_max=SEARCH_STEPS_MAX)
            self.is_search_complete &= verdict.legal is not None
            if verdict.legal is False:
                raise Violation(f"S16 the history of list {key} is not linearizable: {verdict.explanation()}")


def _that_matter(operations: Iterable[Operation], there: set[int]) -> list[Operation]:
    """Return the operations without appends of unknown outcome that did not happen."""
    return [operation for operation in operations if not operation.is_unknown or operation.input[1] in there]  # type: ignore[index]

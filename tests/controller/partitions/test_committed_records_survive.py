"""The guarantee of eligible leader replicas: a cleanly elected leader has every committed record (KIP-966).

A model of one partition: logs as lists of records, a leader that commits as brokers do, a controller that builds its changes
with `partition_change.py`, and brokers that lag, stop, and restart with or without the ends of their logs. Not modelled: two
leaders at the same time, which epochs keep apart, and metadata that arrives late.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import MIGRATING
from kraftlab.controller.partitions.election import Election
from kraftlab.controller.partitions.partition_change import build_cancel, build_change
from kraftlab.controller.reassignment import arithmetic
from kraftlab.metadata.eligible_leaders import partition_min_isr
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.partitions import partition_after
from kraftlab.metadata.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChange

TOPIC_ID = b"records survive."
BROKERS = range(4)


class Model:
    """One partition, its replicas' logs, and what was committed."""

    def __init__(self, replicas: tuple[int, ...], min_isr: int) -> None:
        self.state = PartitionImage(replicas, (MIGRATING,) * len(replicas), replicas, replicas[0])
        self.min_isr = min_isr
        self.logs: dict[int, list[int]] = {broker_id: [] for broker_id in BROKERS}
        self.dead: set[int] = set()
        self.committed: list[int] = []
        self.high_watermark = 0
        self.epoch_start = 0
        self.known_ends: dict[int, int] = {}
        self.next_record = 0

    # --- the leader ---

    def append(self) -> None:
        if self.state.leader != NO_LEADER:
            self.logs[self.state.leader].append(self.next_record)
            self.next_record += 1
            self.commit()

    def fetch(self, follower: int, records: int) -> None:
        """The follower truncates records that the leader does not have, and copies some of those it lacks. The leader learns
        its end offset.
        """
        leader = self.state.leader
        if leader == NO_LEADER or follower in self.dead or follower == leader or follower not in self.state.replicas:
            return
        source, copy = self.logs[leader], self.logs[follower]
        common = next((at for at, (a, b) in enumerate(zip(source, copy, strict=False)) if a != b), min(len(source), len(copy)))
        self.logs[follower] = source[: common + records]
        self.known_ends[follower] = len(self.logs[follower])
        self.commit()

    def commit(self) -> None:
        leader, isr = self.state.leader, self.state.isr
        if leader == NO_LEADER or len(isr) < partition_min_isr(self.state, self.min_isr):
            return
        ends = [len(self.logs[leader]) if member == leader else self.known_ends.get(member, 0) for member in isr]
        self.high_watermark = max(self.high_watermark, min(ends))
        if self.high_watermark > len(self.committed):
            self.committed = self.logs[leader][: self.high_watermark]

    # --- the controller ---

    def change(self, **wanted: Any) -> None:
        self.take(build_change(self.state, 0, TOPIC_ID, **self.rules(), **wanted), wanted.get("target_isr", ()))

    def rules(self) -> dict[str, Any]:
        return {
            "accepts": lambda _, broker_id: broker_id not in self.dead,
            "default_directory": lambda broker_id: MIGRATING,
            "min_isr": self.min_isr,
        }

    def take(self, record: PartitionChange | None, joining: tuple[int, ...] = ()) -> None:
        if record is None:
            return
        before, self.state = self.state, partition_after(self.state, record)
        leader = self.state.leader
        if leader not in (before.leader, NO_LEADER):
            log = self.logs[leader]
            if leader not in {*before.isr, *before.elr, *joining}:
                assert self.state.leader_recovery_state == RECOVERING
                self.committed = [record for at, record in enumerate(self.committed) if log[at : at + 1] == [record]]
            assert log[: len(self.committed)] == self.committed, f"{self.state}: leader {leader} lacks committed records"
        if record.leader is not None and leader != NO_LEADER:
            self.known_ends = {}
            self.high_watermark = 0
            self.epoch_start = len(self.logs[leader])
        self.commit()

    def join(self, follower: int) -> None:
        state, end = self.state, self.known_ends.get(follower, -1)
        may_join = follower in state.replicas and follower not in self.dead and follower not in state.isr
        if state.leader != NO_LEADER and may_join and end >= max(self.high_watermark, self.epoch_start):
            self.change(target_isr=(*state.isr, follower), recovery_state=RECOVERED)

    def leave(self, follower: int) -> None:
        state = self.state
        if state.leader not in (NO_LEADER, follower) and follower in state.isr:
            self.change(target_isr=self.isr_without(follower), recovery_state=RECOVERED)

    def isr_without(self, broker_id: int) -> tuple[int, ...]:
        return tuple(member for member in self.state.isr if member != broker_id)

    def fence(self, broker_id: int) -> None:
        self.dead.add(broker_id)
        self.change(target_isr=self.isr_without(broker_id))

    def crash(self, broker_id: int, kept: int) -> None:
        """The replica stops, comes back without the end of its log, and is fenced until `unfence`."""
        self.dead.add(broker_id)
        del self.logs[broker_id][kept:]
        # The leader knows an older broker epoch (KIP-903).
        self.known_ends.pop(broker_id, None)
        self.change(target_isr=self.isr_without(broker_id), uncleanly_stopped=(broker_id,))

    def unfence(self, broker_id: int) -> None:
        self.dead.discard(broker_id)
        if self.state.leader == NO_LEADER:
            self.change()

    def elect(self, mode: Election) -> None:
        self.change(election=mode)

    def move(self, target: tuple[int, ...]) -> None:
        self.change(reassign=arithmetic.start(self.state, target))

    def cancel(self, unclean_allowed: bool) -> None:
        try:
            self.take(build_cancel(self.state, 0, TOPIC_ID, "t:0", **self.rules(), unclean_allowed=unclean_allowed))
        except ApiError:
            return

    def set_minimum(self, minimum: int) -> None:
        """Change the minimum, in one batch with a ClearElr."""
        self.min_isr = minimum
        if self.state.isr:
            self.state = msgspec.structs.replace(self.state, elr=(), last_known_elr=())
        self.commit()


def play(seed: int, steps: int = 60) -> None:
    """A history in which brokers are up most of the time, and followers mostly keep up."""
    source = random.Random(seed)
    model = Model(tuple(source.sample(BROKERS, source.choice((2, 3, 3, 4)))), source.choice((1, 2, 2, 3)))
    kinds = {
        "append": 20,
        "fetch": 30,
        "join": 12,
        "leave": 5,
        "fence": 6,
        "crash": 4,
        "unfence": 14,
        "elect": 4,
        "move": 2,
        "cancel": 1,
        "set_minimum": 2,
    }
    for kind in source.choices(list(kinds), list(kinds.values()), k=steps):
        broker_id = source.choice(model.state.replicas)
        match kind:
            case "append":
                model.append()
            case "fetch":
                model.fetch(broker_id, source.choice((1, 99, 99)))
            case "crash":
                model.crash(broker_id, source.randrange(4))
            case "unfence":
                model.unfence(source.choice(sorted(model.dead) or [broker_id]))
            case "elect":
                model.elect(source.choice(list(Election)))
            case "move":
                model.move(tuple(source.sample(BROKERS, source.choice((1, 2, 3)))))
            case "cancel":
                model.cancel(source.random() < 0.3)
            case "set_minimum":
                model.set_minimum(source.choice((1, 2, 3)))
            case _:
                getattr(model, kind)(broker_id)


@pytest.mark.parametrize("hundred", range(8))
def test_a_cleanly_elected_leader_has_all_that_was_committed(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_eligible_replicas_are_cleared_once_the_elected_leader_commits_alone() -> None:
    """The minimum was lowered while no replica was in sync."""
    model = Model((0, 1, 2), 3)
    for broker_id in (2, 1, 0):
        model.fence(broker_id)
    assert model.state.elr == (0, 1, 2)
    model.set_minimum(1)
    model.unfence(0)
    model.append()
    assert (model.state.isr, model.state.elr, model.committed) == ((0,), (), [0])
    model.crash(0, 0)
    model.unfence(1)
    assert (model.state.leader, model.state.last_known_elr) == (-1, (0,))

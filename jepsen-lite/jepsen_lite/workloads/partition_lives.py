"""Partitions, from the log alone: allowed changes of replicas, in-sync sets and leaders, record by record.

An automaton that shares no code with the controller. A partition is idle or moving. A moving partition has adding or removing
replicas, an original and a target, and loses no replica before the move ends. A move ends completed (the replicas are the target,
and all added ones are in sync), reverted (the replicas are the original ones, in their order), or with another target that has
already been reached. Invariants of every record: no replica twice; adding and removing replicas disjoint and among the replicas;
the in-sync set among the replicas; the leader in sync or missing. Invariant of every change: a leader is registered, not fenced,
and not shutting down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..checkers.findings import Findings
from ..checkers.fold import changes
from ..committed_log import Entry
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run

NO_LEADER = -1


@dataclass(slots=True)
class _Life:
    replicas: list[int]
    isr: list[int]
    leader: int
    adding: list[int]
    removing: list[int]
    original: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        return bool(self.adding or self.removing)


class PartitionLives:
    """`details`: the numbers of moves that began, were completed, were reverted, and are still open. `settles`: an open move at
    the end is a failure of liveness.
    """

    name = "lives of partitions"

    def __init__(self, *, settles: bool = False) -> None:
        self._settles = settles

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        watch = _Watch()
        for change in changes(run.log):
            touched: set[tuple[str, int]] = set()
            for entry in change.entries:
                touched |= watch.take(entry)
            watch.check_leaders(touched, change.end)
        open_moves = sorted(place for place, life in watch.lives.items() if life.moves)
        details = {**watch.counts, "open": len(open_moves)}
        verdict = watch.findings.verdict(self.name, checked=watch.records, nothing="there was no partition", details=details)
        if verdict.valid is True and open_moves and self._settles:
            reason = f"{len(open_moves)} moves are still in progress at the end, for example of {open_moves[0]}"
            return Verdict(checker=self.name, valid=False, kind="liveness", reason=reason, details=details)
        return verdict


class _Watch:
    def __init__(self) -> None:
        self.lives: dict[tuple[str, int], _Life] = {}
        self.findings = Findings()
        self.counts = {"begun": 0, "completed": 0, "reverted": 0, "replaced": 0}
        self.records = 0
        self._flags: dict[int, tuple[bool, bool]] = {}
        """Registered broker → (fenced, shutting down)."""

    def take(self, entry: Entry) -> set[tuple[str, int]]:
        """Apply a record; return the partitions that the record changes, and those led by the broker that it changes."""
        record = entry.record
        match entry.kind:
            case "Partition":
                place = (record["topic_id"], record["partition_id"])
                self.lives[place] = _born(record)
                self._judge(place, entry.offset)
                return {place}
            case "PartitionChange":
                place = (record["topic_id"], record["partition_id"])
                self._change(place, record, entry.offset)
                self._judge(place, entry.offset)
                return {place}
            case "RemoveTopic":
                for place in [place for place in self.lives if place[0] == record["topic_id"]]:
                    del self.lives[place]
            case "RegisterBroker":
                self._flags[record["broker_id"]] = (record["fenced"], record["in_controlled_shutdown"])
                return self._led_by(record["broker_id"])
            case "BrokerRegistrationChange":
                fenced, leaving = self._flags.get(record["broker_id"], (True, False))
                fenced = fenced if record["fenced"] is None else record["fenced"]
                leaving = leaving if record["in_controlled_shutdown"] is None else record["in_controlled_shutdown"]
                self._flags[record["broker_id"]] = (fenced, leaving)
                return self._led_by(record["broker_id"])
            case "UnregisterBroker":
                self._flags.pop(record["broker_id"], None)
                return self._led_by(record["broker_id"])
        return set()

    def _led_by(self, broker: int) -> set[tuple[str, int]]:
        return {place for place, life in self.lives.items() if life.leader == broker}

    def _change(self, place: tuple[str, int], record: dict[str, Any], offset: int) -> None:
        old = self.lives.get(place)
        if old is None:
            self.findings.add("unknown", f"offset {offset} changes partition {place}, which does not exist")
            self.lives[place] = _born({**record, "replicas": record["replicas"] or [], "isr": record["isr"] or []})
            return

        def now(name: str, before: Any) -> Any:
            return before if record[name] is None else record[name]

        new = _Life(
            now("replicas", old.replicas),
            now("isr", old.isr),
            now("leader", old.leader),
            now("adding_replicas", old.adding),
            now("removing_replicas", old.removing),
            now("original_replicas", old.original),
            now("target_replicas", old.target),
        )
        self.lives[place] = new
        self._transition(place, old, new, offset)

    def _transition(self, place: tuple[str, int], old: _Life, new: _Life, offset: int) -> None:
        add = self.findings.add
        if new.moves and not set(old.replicas) <= set(new.replicas):
            lost = sorted(set(old.replicas) - set(new.replicas))
            add("dropped", f"offset {offset}: {place} loses {lost} out of {old.replicas}, but the move to {new.target} continues")
        if not old.moves and new.moves:
            self.counts["begun"] += 1
            if new.original != old.replicas:
                add("original", f"offset {offset}: {place} begins to move from {old.replicas}, but records {new.original}")
        elif old.moves and new.moves and new.target != old.target:
            self.counts["replaced"] += 1
            if new.original != old.original:
                add(
                    "original",
                    f"offset {offset}: {place} gets another target, and its original {old.original} becomes {new.original}",
                )
        elif old.moves and not new.moves:
            if new.replicas == old.original and new.replicas != old.target:
                self.counts["reverted"] += 1
            elif new.replicas == old.target:
                self.counts["completed"] += 1
                missing = sorted(set(old.adding) - set(new.isr))
                if missing:
                    add("too early", f"offset {offset}: {place} is at {new.replicas}, but {missing} are not in sync ({new.isr})")
            else:
                self.counts["replaced"] += 1
                strange = sorted(set(new.replicas) - set(old.replicas) | (set(new.replicas) & set(old.adding)) - set(new.isr))
                if strange:
                    add("neither", f"offset {offset}: {place} ends as {new.replicas} of {old}, but {strange} are not in sync")
        elif set(old.replicas) - set(new.replicas) and not old.moves:
            lost = sorted(set(old.replicas) - set(new.replicas))
            if not set(new.replicas) & set(old.isr):
                add("data lost", f"offset {offset}: {place} goes from {old.replicas} to {new.replicas}, none of them in sync")
            elif set(new.replicas) - set(old.replicas):
                add("at once", f"offset {offset}: {place} loses {lost} and gets {new.replicas} in one step")

    def _judge(self, place: tuple[str, int], offset: int) -> None:
        """Check the invariants of one partition after a record."""
        self.records += 1
        life = self.lives[place]
        replicas = set(life.replicas)
        rules = (
            (len(replicas) == len(life.replicas) > 0, "replicas are distinct"),
            (len(set(life.isr)) == len(life.isr), "in-sync replicas are distinct"),
            (set(life.isr) <= replicas, "in-sync replicas are replicas"),
            (bool(life.isr) or life.leader == NO_LEADER, "without in-sync replicas there is no leader"),
            (life.leader == NO_LEADER or life.leader in life.isr, "the leader is in sync"),
            (set(life.adding) <= replicas and set(life.removing) <= replicas, "added and removed replicas are replicas"),
            (not set(life.adding) & set(life.removing), "no replica is both added and removed"),
            (
                not life.moves or set(life.target) == replicas - set(life.removing),
                "the target is the replicas without the removed ones",
            ),
        )
        for holds, rule in rules:
            if not holds:
                self.findings.add("state", f"offset {offset}: {place}: violated: {rule} ({life})")

    def check_leaders(self, places: set[tuple[str, int]], offset: int) -> None:
        """Check, at the end of a change, that every leader may lead."""
        for place in places:
            life = self.lives.get(place)
            if life is None or life.leader == NO_LEADER:
                continue
            flags = self._flags.get(life.leader)
            if flags is None or any(flags):
                what = "not registered" if flags is None else "fenced" if flags[0] else "shutting down"
                self.findings.add("leader", f"after offset {offset}, {place} is led by {life.leader}, which is {what}")


def _born(record: dict[str, Any]) -> _Life:
    return _Life(
        record["replicas"],
        record["isr"],
        NO_LEADER if record["leader"] is None else record["leader"],
        record["adding_replicas"] or [],
        record["removing_replicas"] or [],
        record["original_replicas"] or [],
        record["target_replicas"] or [],
    )

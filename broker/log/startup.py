"""Start-up plan for the replica directories of a broker: one pure function over one table (KIP-113, KIP-858).

A crash may fall between any two steps of creating, moving and deleting, and a disk may be missing. The directories are first
reduced to at most one current and one future directory for each replica (the metadata and the leader epochs decide between
several). Then the table `ROWS` decides: the first row that matches counts, and the last row of each shape matches always, so the
function is total.

The rules: a directory that the metadata does not know is set aside, not deleted. Data of a replica are deleted only when another
directory of the same topic id stays that has all of them, or from which they were being copied. A future directory replaces the
current one only if both are there and end alike, or if no current one can exist. That the metadata names the future one's log
directory is not enough: it does so before the last records are copied, and while a dropped move is not yet taken back. When two
directories contradict each other nothing is changed and the broker refuses to start.

A directory that has a replica's name and no topic id that can be read, or that of another topic, is doubtful: its
`partition.metadata` may be damaged. So is one whose log cannot be opened, since something was put among its segments. The plan
never replaces it by an empty log: the replica stays offline and the directory stays as it is, until a person promotes it, or the
running broker has asked another one that leads (`ReplicaManager.run_placing`). A new topic of the same name is distinguished by
its partition, which has not changed yet (partition epoch 0). A replica whose directory is missing, though a checkpoint knows its
offsets, is treated in the same way.

The plan does not judge if the metadata is fresh. So it must not depend on who leads.

A directory that comes back while the broker runs gets the same plan (`plan_return`), with one difference: a replica that has a
running log keeps it, since it has taken part in replication meanwhile.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kraftlab.common.uuids import MIGRATING, UNASSIGNED, Uuid, to_text
from kraftlab.records.record_batch import NO_EPOCH

from .dir_names import DirKind
from .leader_epochs import EpochEntry


class FoundDir(msgspec.Struct, frozen=True):
    """A replica's directory on a working log directory. Offsets and epochs are known for current and future directories."""

    log_dir: Uuid
    name: str
    kind: DirKind
    topic: str
    partition: int
    topic_id: Uuid | None
    log_start_offset: int = 0
    log_end_offset: int = 0
    epochs: tuple[EpochEntry, ...] = ()
    fault: str = ""
    """Reason why the topic id is not known, or why the log cannot be opened."""

    def epoch_at(self, offset: int) -> int:
        return max((entry.epoch for entry in self.epochs if entry.start_offset <= offset), default=NO_EPOCH)

    @property
    def progress(self) -> tuple[int, int]:
        """Orders logs of one partition by their progress: last epoch, then end offset."""
        return self.epochs[-1].epoch if self.epochs else NO_EPOCH, self.log_end_offset


class AssignedReplica(msgspec.Struct, frozen=True):
    """A replica that the metadata assigns to this broker, with its log directory. `is_counted_on`: other nodes believe that the
    replica has records, so that it must not be created empty while its log may only be out of reach.

    `has_changed`: the partition is not as it was created. `had_records`: a checkpoint of the assigned log directory has offsets
    of the replica, and it has changed.
    """

    topic: str
    topic_id: Uuid
    partition: int
    directory: Uuid
    is_counted_on: bool = False
    has_changed: bool = False
    had_records: bool = False


class Verb(enum.Enum):
    SERVE = "serve"
    RESUME_MOVE = "resume the move"
    PROMOTE = "promote"
    CREATE = "create"
    OFFLINE = "offline"
    DELETE = "delete"
    SET_ASIDE = "set aside"
    KEEP = "keep"
    REFUSE = "refuse to start"


class Action(msgspec.Struct, frozen=True):
    """One action. `subject` is its directory: the current one for SERVE and RESUME_MOVE (`other` is the future one), the future
    one for PROMOTE (`other` is the current one that it replaces, if any). CREATE and OFFLINE have none.

    `doubted`: topic id of the replica that a kept directory may belong to.
    """

    verb: Verb
    topic: str
    partition: int
    subject: FoundDir | None = None
    other: FoundDir | None = None
    reason: str = ""
    doubted: Uuid | None = None

    def __repr__(self) -> str:
        names = " ".join(found.name for found in (self.subject, self.other) if found)
        return " ".join(
            filter(None, (self.verb.value, names or f"{self.topic}-{self.partition}", self.reason and f"({self.reason})"))
        )


class Home(enum.Enum):
    """The directory that the metadata names for the replica."""

    CURRENT = enum.auto()
    FUTURE = enum.auto()
    GOOD = enum.auto()
    """Another working directory."""
    UNASSIGNED = enum.auto()
    ELSEWHERE = enum.auto()
    """Not a working directory: it is offline, lost, unknown, or was never reported."""


class Case(NamedTuple):
    """State of one replica of this broker. `level`: future and current log end alike."""

    has_current: bool
    has_future: bool
    has_bad_dirs: bool
    home: Home
    level: bool
    is_counted_on: bool
    is_doubtful: bool
    had_records: bool


class Row(NamedTuple):
    """A row of the table; None matches anything."""

    has_current: bool
    has_future: bool | None
    verb: Verb
    has_bad_dirs: bool | None = None
    home: Home | None = None
    level: bool | None = None
    is_counted_on: bool | None = None
    is_doubtful: bool | None = None
    had_records: bool | None = None
    reason: str = ""

    def matches(self, case: Case) -> bool:
        return all(
            wanted is None or wanted == getattr(case, name) for name, wanted in self._asdict().items() if name in Case._fields
        )


MAY_BE_OFFLINE = "its current directory may be on the offline log directory"
IS_MISSING = (
    "its directory is missing, and it had records: move the directory back and restart the broker, or let another replica lead"
)

ROWS: tuple[Row, ...] = (
    Row(True, False, Verb.SERVE),
    Row(True, True, Verb.PROMOTE, home=Home.FUTURE, level=True, reason="the metadata names the target and the logs end alike"),
    Row(True, True, Verb.RESUME_MOVE),
    Row(False, None, Verb.OFFLINE, is_doubtful=True),
    Row(False, True, Verb.PROMOTE, has_bad_dirs=False, reason="the swap was cut short"),
    Row(False, True, Verb.OFFLINE, reason=MAY_BE_OFFLINE),
    Row(False, False, Verb.OFFLINE, had_records=True, reason=IS_MISSING),
    Row(False, False, Verb.CREATE, has_bad_dirs=False),
    Row(False, False, Verb.CREATE, home=Home.GOOD, is_counted_on=False),
    Row(False, False, Verb.CREATE, home=Home.UNASSIGNED, is_counted_on=False),
    Row(False, False, Verb.OFFLINE, reason="it may be on the offline log directory"),
)


def plan_startup(
    found: Iterable[FoundDir], assigned: Iterable[AssignedReplica], *, good_dirs: Sequence[Uuid], has_bad_dirs: bool
) -> list[Action]:
    """Return all actions, replica by replica. Never raises; a plan with a REFUSE in it must not be carried out at all.

    `good_dirs`: ids of the working log directories, in the configured order. `has_bad_dirs`: a configured directory is offline.
    """
    by_replica: dict[tuple[Uuid, int], list[FoundDir]] = defaultdict(list)
    foreign: dict[tuple[str, int, Uuid | None], list[FoundDir]] = defaultdict(list)
    wanted = {(replica.topic_id, replica.partition): replica for replica in assigned}
    named = {(replica.topic, replica.partition): replica for replica in wanted.values()}
    actions: list[Action] = []
    for item in found:
        if item.kind is DirKind.STRAY:
            actions.append(_about(Verb.KEEP, item, "set aside before"))
            continue
        replica = wanted.get((item.topic_id or b"", item.partition))
        if replica is None or not _has_name_of(item, replica.topic):
            of_another, replica = replica, named.get((item.topic, item.partition))
            if replica is not None and not _is_doubtful(item, replica, of_another is not None):
                replica = None
        if replica is not None:
            by_replica[replica.topic_id, replica.partition].append(item)
        else:
            foreign[item.topic, item.partition, item.topic_id].append(item)
    for group in foreign.values():
        actions += _plan_foreign(group)
    for key, replica in wanted.items():
        actions += plan_replica(by_replica[key], replica, good_dirs=good_dirs, has_bad_dirs=has_bad_dirs)
    return actions


def _has_name_of(item: FoundDir, topic: str) -> bool:
    """Return True if the directory's name is one of the topic's. Only the name of a current directory is never truncated."""
    return item.topic == topic if item.kind is DirKind.CURRENT else topic.startswith(item.topic)


def _is_doubtful(item: FoundDir, replica: AssignedReplica, of_another: bool) -> bool:
    """Return True if a directory with the replica's name may be the replica's own, though its topic id does not say so.

    `of_another`: it is the id of another topic that exists, so it is not that of an older topic with this name.
    """
    if item.kind is DirKind.CURRENT:
        return item.topic_id is None or of_another or replica.has_changed
    return item.kind is DirKind.FUTURE and item.topic_id is None


class Running(NamedTuple):
    """A replica with a running log. `is_moving`: a move between log directories is building another one."""

    current: FoundDir
    is_moving: bool


def plan_return(
    found: Iterable[FoundDir],
    running: Mapping[tuple[Uuid, int], Running],
    assigned: Iterable[AssignedReplica],
    *,
    good_dirs: Sequence[Uuid],
    has_bad_dirs: bool,
) -> list[Action]:
    """Return the actions for a log directory that comes back, as `plan_startup` does; never REFUSE beside a running log.

    `found`: the directories in it, and copies elsewhere that were kept for want of it. `running`: replicas with a log.
    """
    actions: list[Action] = []
    rest: list[FoundDir] = []
    targets: dict[tuple[Uuid, int], list[FoundDir]] = defaultdict(list)
    for item in found:
        key = (item.topic_id or b"", item.partition)
        has_log = key in running and _has_name_of(item, running[key].current.topic)
        if not has_log or item.kind in (DirKind.DELETE, DirKind.STRAY):
            rest.append(item)
        elif item.kind is DirKind.CURRENT or item.fault:
            place = to_text(running[key].current.log_dir)
            actions.append(_about(Verb.SET_ASIDE, item, f"log directory {place} has got the replica meanwhile"))
        else:
            targets[key].append(item)
    for key, futures in targets.items():
        current = running[key].current
        resumed = None if running[key].is_moving else max(futures, key=lambda item: item.progress)
        if resumed is not None:
            actions.append(Action(Verb.RESUME_MOVE, resumed.topic, resumed.partition, current, resumed))
        actions += [_about(Verb.DELETE, item, "another move is under way") for item in futures if item is not resumed]
    waiting = [replica for replica in assigned if (replica.topic_id, replica.partition) not in running]
    return actions + plan_startup(rest, waiting, good_dirs=good_dirs, has_bad_dirs=has_bad_dirs)


def plan_replica(
    found: Sequence[FoundDir], replica: AssignedReplica, *, good_dirs: Sequence[Uuid], has_bad_dirs: bool
) -> list[Action]:
    """Return the actions for one replica of this broker; the directories `found` have its topic id or are doubtful."""
    actions: list[Action] = []
    doubtful = [item for item in found if item.topic_id != replica.topic_id or item.fault]
    found = [item for item in found if item not in doubtful]
    current = _choose_current(_of_kind(found, DirKind.CURRENT), replica, actions)
    future = _choose_future(_of_kind(found, DirKind.FUTURE), replica, current, actions)
    deleted = _of_kind(found, DirKind.DELETE)
    case = Case(
        has_current=current is not None,
        has_future=future is not None,
        has_bad_dirs=has_bad_dirs,
        home=_home(replica.directory, current, future, good_dirs),
        level=current is not None and future is not None and current.progress == future.progress,
        is_counted_on=replica.is_counted_on,
        is_doubtful=bool(doubtful),
        had_records=replica.had_records,
    )
    row = next(row for row in ROWS if row.matches(case))
    match row.verb:
        case Verb.PROMOTE:
            actions.append(Action(row.verb, replica.topic, replica.partition, future, current, row.reason))
        case Verb.SERVE | Verb.RESUME_MOVE:
            actions.append(Action(row.verb, replica.topic, replica.partition, current, future, row.reason))
        case _:
            reason = row.reason or (_doubt(doubtful[0], replica) if doubtful else "")
            actions.append(Action(row.verb, replica.topic, replica.partition, reason=reason))
            actions += [_about(Verb.KEEP, item, reason) for item in (future,) if item is not None]
    for item in doubtful:
        if row.verb is Verb.OFFLINE:
            actions.append(
                Action(Verb.KEEP, item.topic, item.partition, item, reason=_doubt(item, replica), doubted=replica.topic_id)
            )
        else:
            actions.append(_about(Verb.SET_ASIDE, item, _doubt(item, replica)))
    return actions + [_about(Verb.DELETE, item, "deletion goes on") for item in deleted]


def _doubt(item: FoundDir, replica: AssignedReplica) -> str:
    """Reason why a doubtful directory is not served."""
    if item.fault or item.topic_id is None:
        return item.fault or "its topic id is unknown"
    return f"its partition.metadata names topic {to_text(item.topic_id)}, but {replica.topic} is {to_text(replica.topic_id)}"


def is_prefix(shorter: FoundDir, longer: FoundDir) -> bool:
    """Return True if everything in `shorter` is in `longer` too, by the leader epochs where both have records."""
    if shorter.log_end_offset > longer.log_end_offset:
        return False
    start = max(shorter.log_start_offset, longer.log_start_offset)
    edges = {start, *(entry.start_offset for entry in (*shorter.epochs, *longer.epochs))}
    return all(shorter.epoch_at(edge) == longer.epoch_at(edge) for edge in edges if start <= edge < shorter.log_end_offset)


def _choose_current(currents: list[FoundDir], replica: AssignedReplica, actions: list[Action]) -> FoundDir | None:
    """Choose the assigned current directory, otherwise the longest one; the others must be prefixes of it."""
    if not currents:
        return None
    chosen = max(currents, key=lambda item: (item.log_dir == replica.directory, item.progress))
    for other in currents:
        if other is chosen:
            continue
        if is_prefix(other, chosen):
            actions.append(
                _about(Verb.SET_ASIDE, other, f"log directory {to_text(chosen.log_dir)} has the replica too, and all of this")
            )
        else:
            reason = (
                f"log directories {to_text(chosen.log_dir)} and {to_text(other.log_dir)} both have a directory {chosen.name}, "
                "and neither contains the other's records; move one of the two away"
            )
            actions.append(Action(Verb.REFUSE, replica.topic, replica.partition, chosen, other, reason))
    return chosen


def _choose_future(
    futures: list[FoundDir], replica: AssignedReplica, current: FoundDir | None, actions: list[Action]
) -> FoundDir | None:
    """Choose the assigned future directory, otherwise the longest one; never one beside the current directory."""
    if current is not None:
        actions += [_about(Verb.DELETE, item, "beside its source") for item in futures if item.log_dir == current.log_dir]
        futures = [item for item in futures if item.log_dir != current.log_dir]
    if not futures:
        return None
    chosen = max(futures, key=lambda item: (item.log_dir == replica.directory, item.progress))
    for other in futures:
        if other is not chosen:
            is_spare = current is not None or is_prefix(other, chosen)
            verb = Verb.DELETE if is_spare else Verb.SET_ASIDE
            actions.append(_about(verb, other, f"the move to log directory {to_text(chosen.log_dir)} is kept"))
    return chosen


def _plan_foreign(group: list[FoundDir]) -> list[Action]:
    """Plan for directories of one partition and topic id that the metadata does not assign to this broker."""
    has_current = any(item.kind is DirKind.CURRENT and not item.fault for item in group)
    actions: list[Action] = []
    for item in group:
        if item.kind is DirKind.DELETE:
            actions.append(_about(Verb.DELETE, item, "deletion goes on"))
        elif item.kind is DirKind.FUTURE and has_current and item.topic_id is not None and not item.fault:
            actions.append(_about(Verb.DELETE, item, "a move of a replica that has left this broker"))
        else:
            actions.append(_about(Verb.SET_ASIDE, item, "not assigned to this broker"))
    return actions


def _home(directory: Uuid, current: FoundDir | None, future: FoundDir | None, good_dirs: Sequence[Uuid]) -> Home:
    if current is not None and directory == current.log_dir:
        return Home.CURRENT
    if future is not None and directory == future.log_dir:
        return Home.FUTURE
    if directory == UNASSIGNED:
        return Home.UNASSIGNED
    return Home.GOOD if directory in good_dirs and directory != MIGRATING else Home.ELSEWHERE


def _of_kind(found: Iterable[FoundDir], kind: DirKind) -> list[FoundDir]:
    return [item for item in found if item.kind is kind]


def _about(verb: Verb, item: FoundDir, reason: str) -> Action:
    return Action(verb, item.topic, item.partition, item, reason=reason)

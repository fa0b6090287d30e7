"""The start-up table: each row, and what holds for every combination of directories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from kraftlab.broker.log.dir_names import DirKind
from kraftlab.broker.log.leader_epochs import EpochEntry
from kraftlab.broker.log.startup import (
    ROWS,
    Action,
    AssignedReplica,
    Case,
    FoundDir,
    Home,
    Running,
    Verb,
    is_prefix,
    plan_return,
    plan_startup,
)
from kraftlab.common.uuids import LOST, MIGRATING, UNASSIGNED

D1, D2, D3, DEAD = (bytes([n]) * 16 for n in (101, 102, 103, 104))
TOPIC, OTHER_TOPIC = b"T" * 16, b"O" * 16
GOOD = (D1, D2, D3)
CURRENT, FUTURE, DELETE, STRAY = DirKind.CURRENT, DirKind.FUTURE, DirKind.DELETE, DirKind.STRAY


def found(
    kind: DirKind, log_dir: bytes, end: int = 100, epochs: tuple[tuple[int, int], ...] = ((1, 0),), topic_id=TOPIC
) -> FoundDir:
    name = "t-0" if kind is CURRENT else f"t-0.{log_dir.hex()[:6]}{kind.value}"
    entries = tuple(EpochEntry(*entry) for entry in epochs)
    return FoundDir(log_dir, name, kind, "t", 0, topic_id, log_end_offset=end, epochs=entries)


def plan(*dirs: FoundDir, metadata: bytes | None = D1, bad: bool = False, counted_on: bool = False, **known: bool) -> list[str]:
    """The plan as lines: verb, directories' numbers; `metadata` None: not a replica."""
    assigned = [] if metadata is None else [AssignedReplica("t", TOPIC, 0, metadata, counted_on, **known)]
    return lines(plan_startup(dirs, assigned, good_dirs=GOOD, has_bad_dirs=bad))


def lines(actions: list[Action]) -> list[str]:
    def line(action: Action) -> str:
        places = [f"{item.kind.name[0]}{item.log_dir[0] - 100}" for item in (action.subject, action.other) if item]
        return " ".join([action.verb.name, *places])

    return [line(action) for action in actions]


C1, C2, C3 = (found(CURRENT, d) for d in GOOD)
F1, F2, F3 = (found(FUTURE, d) for d in GOOD)
D_1, D_2, D_3 = (found(DELETE, d) for d in GOOD)
SHORT_F2 = found(FUTURE, D2, end=60)


@pytest.mark.parametrize(
    ("row", "expected", "actual"),
    [
        (1, ["SERVE C1"], plan(C1)),
        (1, ["SERVE C1"], plan(C1, metadata=D2)),
        (2, ["SERVE C1"], plan(C1, metadata=DEAD, bad=True)),
        (3, ["RESUME_MOVE C1 F2"], plan(C1, SHORT_F2, metadata=D1)),
        (3, ["RESUME_MOVE C1 F2"], plan(C1, F2, metadata=D1)),
        (3, ["PROMOTE F2 C1"], plan(C1, F2, metadata=D2)),
        (3, ["PROMOTE F2 C1"], plan(C1, F2, metadata=D2, bad=True)),
        (3, ["RESUME_MOVE C1 F2"], plan(C1, SHORT_F2, metadata=D2)),
        (3, ["RESUME_MOVE C1 F2"], plan(C1, found(FUTURE, D2, epochs=((2, 0),)), metadata=D2)),
        (4, ["PROMOTE F2"], plan(F2, metadata=D1)),
        (5, ["OFFLINE", "KEEP F2"], plan(F2, metadata=D2, bad=True)),
        (5, ["OFFLINE", "KEEP F2"], plan(F2, metadata=DEAD, bad=True)),
        (5, ["OFFLINE", "KEEP F2"], plan(F2, metadata=LOST, bad=True)),
        (6, ["SERVE C1", "DELETE D2"], plan(C1, D_2)),
        (7, ["SERVE C1", "DELETE D1"], plan(C1, D_1)),
        (8, ["PROMOTE F2", "DELETE D1"], plan(F2, D_1, metadata=D2)),
        (9, ["OFFLINE", "KEEP F2", "DELETE D1"], plan(F2, D_1, metadata=D1, bad=True)),
        (9, ["OFFLINE", "KEEP F2", "DELETE D1"], plan(F2, D_1, metadata=DEAD, bad=True)),
        (10, ["SET_ASIDE C2", "SERVE C1"], plan(C1, C2, metadata=D1)),
        (10, ["SET_ASIDE C1", "SERVE C2"], plan(C1, C2, metadata=D2)),
        (10, ["SET_ASIDE C2", "SERVE C1"], plan(C1, found(CURRENT, D2, end=50), metadata=DEAD)),
        (10, ["REFUSE C1 C2", "SERVE C1"], plan(C1, found(CURRENT, D2, end=150), metadata=D1)),
        (10, ["REFUSE C1 C2", "SERVE C1"], plan(C1, found(CURRENT, D2, end=90, epochs=((2, 0),)), metadata=D1)),
        (11, ["DELETE F3", "PROMOTE F2 C1"], plan(C1, F2, F3, metadata=D2, bad=True)),
        (11, ["DELETE F2", "RESUME_MOVE C1 F3"], plan(C1, SHORT_F2, F3, metadata=D1)),
        (11, ["DELETE F2", "PROMOTE F3"], plan(SHORT_F2, F3, metadata=D1)),
        (11, ["SET_ASIDE F3", "PROMOTE F2"], plan(SHORT_F2, F3, metadata=D2)),
        (12, ["KEEP S1", "SERVE C2"], plan(found(STRAY, D1), C2)),
        (13, ["SET_ASIDE C1"], plan(C1, metadata=None)),
        (13, ["OFFLINE", "KEEP C1"], plan(found(CURRENT, D1, topic_id=None))),
        (13, ["OFFLINE", "KEEP C1"], plan(found(CURRENT, D1, topic_id=None), metadata=DEAD, counted_on=True, bad=True)),
        (13, ["OFFLINE", "KEEP C1", "KEEP F2"], plan(found(CURRENT, D1, topic_id=None), found(FUTURE, D2, topic_id=None))),
        (13, ["OFFLINE", "KEEP F2", "KEEP C1"], plan(found(CURRENT, D1, topic_id=None), F2)),
        (13, ["SERVE C2", "SET_ASIDE C1"], plan(found(CURRENT, D1, topic_id=None), C2)),
        (13, ["SET_ASIDE C1", "SERVE C2"], plan(found(CURRENT, D1, topic_id=OTHER_TOPIC), C2)),
        (13, ["SET_ASIDE C1", "CREATE"], plan(found(CURRENT, D1, topic_id=OTHER_TOPIC))),
        (13, ["OFFLINE", "KEEP C1"], plan(found(CURRENT, D1, topic_id=OTHER_TOPIC), has_changed=True)),
        (13, ["SET_ASIDE C1", "DELETE F2"], plan(C1, F2, metadata=None)),
        (13, ["SET_ASIDE F2"], plan(F2, metadata=None)),
        (13, ["DELETE D1"], plan(D_1, metadata=None)),
        (14, ["CREATE"], plan(metadata=D1)),
        (14, ["CREATE"], plan(metadata=DEAD)),
        (14, ["CREATE"], plan(metadata=D1, counted_on=True)),
        (14, ["CREATE"], plan(metadata=D1, bad=True)),
        (14, ["OFFLINE"], plan(metadata=D1, had_records=True)),
        (15, ["OFFLINE"], plan(metadata=D1, bad=True, counted_on=True)),
        (15, ["OFFLINE"], plan(metadata=DEAD, bad=True)),
        (15, ["OFFLINE"], plan(metadata=LOST, bad=True)),
        (15, ["OFFLINE"], plan(metadata=MIGRATING, bad=True)),
        (16, ["CREATE"], plan(metadata=UNASSIGNED, bad=True)),
        (16, ["OFFLINE"], plan(metadata=UNASSIGNED, bad=True, counted_on=True)),
        (17, ["DELETE F1", "SERVE C1"], plan(C1, F1)),
        (17, ["DELETE F1", "RESUME_MOVE C1 F2"], plan(C1, F1, F2)),
        (19, ["CREATE", "DELETE D1"], plan(D_1)),
    ],
)
def test_row(row: int, expected: list[str], actual: list[str]) -> None:
    assert actual == expected


def test_some_row_matches_every_case() -> None:
    booleans = (True, False)
    for values in itertools.product(*[booleans] * 3, Home, *[booleans] * 4):
        assert any(row.matches(Case(*values)) for row in ROWS), values


def test_a_prefix_is_judged_by_epochs_where_both_have_records() -> None:
    long = found(CURRENT, D1, end=100, epochs=((1, 0), (3, 40), (4, 80)))
    assert is_prefix(found(CURRENT, D2, end=80, epochs=((1, 0), (3, 40))), long)
    assert is_prefix(found(CURRENT, D2, end=0, epochs=()), long)
    assert not is_prefix(found(CURRENT, D2, end=80, epochs=((1, 0), (2, 40))), long)
    assert not is_prefix(found(CURRENT, D2, end=80, epochs=((1, 0), (3, 50))), long)
    assert not is_prefix(long, found(CURRENT, D2, end=99, epochs=long.epochs))


# Every combination of up to three directories. Log directories are numbered in the order in which they are met: renaming them
# changes no plan.

DIVERGED = ((1, 0), (2, 55))
SHAPES = (
    *((CURRENT, TOPIC, *log) for log in ((100, ((1, 0),)), (60, ((1, 0),)), (100, DIVERGED))),
    *((FUTURE, TOPIC, *log) for log in ((100, ((1, 0),)), (60, ((1, 0),)), (100, DIVERGED))),
    *((kind, OTHER_TOPIC, 100, ((1, 0),)) for kind in (CURRENT, FUTURE, DELETE)),
    (CURRENT, None, 100, ((1, 0),)),
    (DELETE, TOPIC, 0, ()),
    (STRAY, TOPIC, 0, ()),
)
METADATA = (*GOOD, DEAD, UNASSIGNED, LOST, MIGRATING, None)
FATES = (Verb.SERVE, Verb.RESUME_MOVE, Verb.PROMOTE, Verb.CREATE, Verb.OFFLINE)


def placements(count: int) -> Iterator[tuple[int, ...]]:
    """Log directories of so many directories: each is in one of those before it, or in the next."""
    if not count:
        yield ()
        return
    for before in placements(count - 1):
        for place in range(max(before, default=-1) + 2):
            yield (*before, place)


def combinations(good: Sequence[bytes] = GOOD) -> Iterator[list[FoundDir]]:
    """Directories that can lie side by side: one plain name at most in each log directory."""
    for count in range(4):
        for shapes in itertools.combinations_with_replacement(SHAPES, count):
            for places in placements(count):
                plain = [place for place, shape in zip(places, shapes, strict=True) if shape[0] is CURRENT]
                if len(set(plain)) < len(plain) or max(places, default=0) >= len(good):
                    continue
                dirs = [
                    found(kind, good[place], end, epochs, topic_id)
                    for place, (kind, topic_id, end, epochs) in zip(places, shapes, strict=True)
                ]
                yield [msgspec.structs.replace(item, name=f"{item.name}#{index}") for index, item in enumerate(dirs)]


def is_data(item: FoundDir | None) -> bool:
    return item is not None and item.kind in (CURRENT, FUTURE)


def check_no_data_is_lost(dirs: list[FoundDir], actions: list[Action], beside: Sequence[FoundDir] = ()) -> None:
    """Data are deleted only if a copy stays that has all of them, or from which they were being copied."""
    gone = [a.subject for a in actions if a.verb is Verb.DELETE and is_data(a.subject)]
    gone += [a.other for a in actions if a.verb is Verb.PROMOTE and a.other]
    stays = [item for item in (*dirs, *beside) if is_data(item) and item not in gone]
    for lost in gone:
        sources = [item for item in (*dirs, *beside) if item.kind is CURRENT and item.topic_id == lost.topic_id]
        is_copy = lost.kind is FUTURE and sources
        assert is_copy or any(is_prefix(lost, item) and item.topic_id == lost.topic_id for item in stays), f"{lost} is lost"


@pytest.mark.parametrize("every", (7, pytest.param(1, marks=pytest.mark.nightly)))
def test_combinations_of_up_to_three_directories_get_a_plan_that_keeps_the_data(every: int) -> None:
    for dirs in itertools.islice(combinations(), 0, None, every):
        data = [item for item in dirs if is_data(item) and item.topic_id == TOPIC]
        can_be_doubtful = any(item.kind is CURRENT and item.topic_id != TOPIC for item in dirs)
        for metadata, bad, counted_on in itertools.product(METADATA, (False, True), (False, True)):
            for changed in (False, True) if can_be_doubtful else (False,):
                replica = AssignedReplica("t", TOPIC, 0, metadata or D1, counted_on, changed)
                assigned = [] if metadata is None else [replica]
                actions = plan_startup(dirs, assigned, good_dirs=GOOD, has_bad_dirs=bad)
                check_plan(dirs, data, assigned, actions, bad)


def check_plan(
    dirs: list[FoundDir], data: list[FoundDir], assigned: list[AssignedReplica], actions: list[Action], bad: bool
) -> None:
    fates = [action for action in actions if action.verb in FATES]
    assert len(fates) == len(assigned), "each replica of this broker has exactly one fate"
    currents = [item for item in data if item.kind is CURRENT]
    refused = [action for action in actions if action.verb is Verb.REFUSE]
    if refused:
        assert not any(is_prefix(x, y) and is_prefix(y, x) for x, y in itertools.combinations(currents, 2)) or len(currents) > 2
        assert all(not is_prefix(a.other, a.subject) for a in refused if a.subject and a.other)
        return
    named = [item.name for action in actions for item in (action.subject, action.other) if item]
    assert sorted(named) == sorted(item.name for item in dirs), "each directory is dealt with once"
    check_no_data_is_lost(dirs, actions)
    for action in actions:
        assert action.verb is not Verb.DELETE or action.subject.kind in (DELETE, FUTURE), "a current log is never deleted alone"
    for fate in fates:
        assert fate.subject is None or fate.subject.topic_id == TOPIC
        doubtful = [item for item in dirs if item.kind is CURRENT and may_be_of(assigned[0], item)]
        assert (fate.verb in (Verb.SERVE, Verb.RESUME_MOVE)) == bool(currents) or fate.verb is Verb.PROMOTE
        assert not (data and fate.verb is Verb.CREATE), "no empty log beside data of the same replica"
        assert bad or doubtful or fate.verb is not Verb.OFFLINE
        if doubtful and not currents:
            assert fate.verb is Verb.OFFLINE, "no empty log, and no half of a move, in the place of what may be the replica's"
            assert all(action.verb is Verb.KEEP for action in actions if action.subject in doubtful)
        assert not (bad and not data and assigned[0].is_counted_on and fate.verb is Verb.CREATE), "its log may be out of reach"


def may_be_of(replica: AssignedReplica, item: FoundDir) -> bool:
    return item.topic_id is None or (replica.has_changed and item.topic_id != replica.topic_id)


def test_a_directory_whose_log_cannot_be_opened_is_never_served_and_never_deleted() -> None:
    for dirs in combinations():
        for index in (index for index, item in enumerate(dirs) if is_data(item)):
            spoilt = msgspec.structs.replace(dirs[index], fault="something is among its segments")
            there = [*dirs[:index], spoilt, *dirs[index + 1 :]]
            sound = [item for item in there if is_data(item) and item.topic_id == TOPIC and item is not spoilt]
            for metadata, bad in itertools.product(METADATA, (False, True)):
                assigned = [] if metadata is None else [AssignedReplica("t", TOPIC, 0, metadata, True, True)]
                actions = plan_startup(there, assigned, good_dirs=GOOD, has_bad_dirs=bad)
                fates = [action.verb for action in actions if action.verb in FATES]
                assert len(fates) == len(assigned)
                if Verb.REFUSE in {action.verb for action in actions}:
                    continue
                about = [action.verb for action in actions if spoilt in (action.subject, action.other)]
                assert about in ([Verb.KEEP], [Verb.SET_ASIDE])
                if assigned and spoilt.topic_id == TOPIC and not sound:
                    assert (fates, about) == ([Verb.OFFLINE], [Verb.KEEP])


def test_a_directory_with_the_id_of_another_topic_of_this_broker_is_doubtful() -> None:
    """Not a second copy of that topic, and not an older topic of its own name."""
    other = msgspec.structs.replace(found(CURRENT, D1, topic_id=OTHER_TOPIC), topic="u", name="u-0")
    damaged = found(CURRENT, D2, topic_id=OTHER_TOPIC)
    assigned = [AssignedReplica("t", TOPIC, 0, D2), AssignedReplica("u", OTHER_TOPIC, 0, D1)]
    actions = plan_startup([other, damaged], assigned, good_dirs=GOOD, has_bad_dirs=False)
    assert [(action.verb, action.topic) for action in actions] == [
        (Verb.OFFLINE, "t"),
        (Verb.KEEP, "t"),
        (Verb.SERVE, "u"),
    ]
    running = {(OTHER_TOPIC, 0): Running(other, False)}
    waiting = [AssignedReplica("t", TOPIC, 0, D2, has_changed=True)]
    [fate, kept] = plan_return([damaged], running, waiting, good_dirs=GOOD, has_bad_dirs=False)
    assert (fate.verb, kept.verb, kept.doubted) == (Verb.OFFLINE, Verb.KEEP, TOPIC)


def test_a_log_directory_that_comes_back_never_disturbs_a_running_log() -> None:
    for dirs in combinations((D2, D3)):
        for log, moving, bad in itertools.product((C1, found(CURRENT, D1, 60)), (False, True), (False, True)):
            running = {(TOPIC, 0): Running(log, moving)}
            assigned = [AssignedReplica("t", TOPIC, 0, D2, True)]
            actions = plan_return(dirs, running, assigned, good_dirs=GOOD, has_bad_dirs=bad)
            assert Verb.REFUSE not in {action.verb for action in actions}
            fates = [action for action in actions if action.verb in FATES]
            assert [(fate.verb, fate.subject) for fate in fates] in ([], [(Verb.RESUME_MOVE, log)])
            futures = any(item.kind is FUTURE and item.topic_id == TOPIC for item in dirs)
            assert bool(fates) == (futures and not moving), "a move goes on, unless another one has begun"
            named = [item.name for action in actions for item in (action.subject, action.other) if item and item is not log]
            assert sorted(named) == sorted(item.name for item in dirs), "each directory is dealt with once"
            check_no_data_is_lost(dirs, actions, [log])
            assert all(a.verb is Verb.SET_ASIDE for a in actions if a.subject in dirs and a.subject.kind is CURRENT)


@pytest.mark.parametrize(
    ("expected", "dirs", "metadata"),
    [
        (["SERVE C2"], [C2], D2),
        (["RESUME_MOVE C2 F1"], [C2, F1], D2),
        (["PROMOTE F1 C2"], [C2, F1], D1),
        (["PROMOTE F1"], [F1], D2),
        (["CREATE"], [], D2),
        (["SET_ASIDE C2"], [C2], None),
        (["SET_ASIDE C2", "CREATE"], [found(CURRENT, D2, topic_id=OTHER_TOPIC)], D1),
    ],
)
def test_a_directory_that_comes_back_is_treated_as_at_the_start(
    expected: list[str], dirs: list[FoundDir], metadata: bytes | None
) -> None:
    """F1: a copy that was kept while the directory of the replica was offline."""
    assigned = [] if metadata is None else [AssignedReplica("t", TOPIC, 0, metadata, True)]
    assert lines(plan_return(dirs, {}, assigned, good_dirs=GOOD, has_bad_dirs=False)) == expected

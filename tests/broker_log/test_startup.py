"""The start-up table: each row, and what holds for every combination of directories."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.log.dir_names import DirKind
from kraftlab.broker.log.leader_epochs import EpochEntry
from kraftlab.broker.log.startup import ROWS, Action, AssignedReplica, Case, FoundDir, Home, Verb, is_prefix, plan_startup
from kraftlab.metadata.uuids import LOST, MIGRATING, UNASSIGNED

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


def plan(*dirs: FoundDir, metadata: bytes | None = D1, bad: bool = False, counted_on: bool = False) -> list[str]:
    """The plan as lines: verb, directories' numbers; `metadata` None: not a replica."""
    assigned = [] if metadata is None else [AssignedReplica("t", TOPIC, 0, metadata, counted_on)]

    def line(action: Action) -> str:
        places = [f"{item.kind.name[0]}{item.log_dir[0] - 100}" for item in (action.subject, action.other) if item]
        return " ".join([action.verb.name, *places])

    return [line(action) for action in plan_startup(dirs, assigned, good_dirs=GOOD, has_bad_dirs=bad)]


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
        (13, ["SET_ASIDE C1", "CREATE"], plan(found(CURRENT, D1, topic_id=None))),
        (13, ["SET_ASIDE C1", "SERVE C2"], plan(found(CURRENT, D1, topic_id=OTHER_TOPIC), C2)),
        (13, ["SET_ASIDE C1", "DELETE F2"], plan(C1, F2, metadata=None)),
        (13, ["SET_ASIDE F2"], plan(F2, metadata=None)),
        (13, ["DELETE D1"], plan(D_1, metadata=None)),
        (14, ["CREATE"], plan(metadata=D1)),
        (14, ["CREATE"], plan(metadata=DEAD)),
        (14, ["CREATE"], plan(metadata=D1, counted_on=True)),
        (14, ["CREATE"], plan(metadata=D1, bad=True)),
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
    for values in itertools.product(booleans, booleans, booleans, Home, booleans, booleans):
        assert any(row.matches(Case(*values)) for row in ROWS), values


def test_a_prefix_is_judged_by_epochs_where_both_have_records() -> None:
    long = found(CURRENT, D1, end=100, epochs=((1, 0), (3, 40), (4, 80)))
    assert is_prefix(found(CURRENT, D2, end=80, epochs=((1, 0), (3, 40))), long)
    assert is_prefix(found(CURRENT, D2, end=0, epochs=()), long)
    assert not is_prefix(found(CURRENT, D2, end=80, epochs=((1, 0), (2, 40))), long)
    assert not is_prefix(found(CURRENT, D2, end=80, epochs=((1, 0), (3, 50))), long)
    assert not is_prefix(long, found(CURRENT, D2, end=99, epochs=long.epochs))


directories = st.builds(
    found,
    st.sampled_from(list(DirKind)),
    st.sampled_from(GOOD),
    st.sampled_from([0, 50, 60, 100]),
    st.sampled_from([((1, 0),), ((1, 0), (2, 55)), ((1, 0), (3, 40))]),
    st.sampled_from([TOPIC, TOPIC, TOPIC, OTHER_TOPIC, None]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(directories, max_size=6),
    st.sampled_from([None, D1, D2, D3, DEAD, UNASSIGNED, LOST, MIGRATING]),
    st.booleans(),
)
def test_every_combination_gets_a_plan_that_keeps_the_data(dirs: list[FoundDir], metadata: bytes | None, bad: bool) -> None:
    dirs = [msgspec.structs.replace(item, name=f"{item.name}#{index}") for index, item in enumerate(dirs)]
    assigned = [] if metadata is None else [AssignedReplica("t", TOPIC, 0, metadata)]
    actions = plan_startup(dirs, assigned, good_dirs=GOOD, has_bad_dirs=bad)

    verbs = [action.verb for action in actions]
    fates = (Verb.SERVE, Verb.RESUME_MOVE, Verb.PROMOTE, Verb.CREATE, Verb.OFFLINE)
    assert sum(verb in fates for verb in verbs) == len(assigned), "each replica of this broker has exactly one fate"
    if Verb.REFUSE in verbs:
        return
    named = [item.name for action in actions for item in (action.subject, action.other) if item]
    assert sorted(named) == sorted(item.name for item in dirs), "each directory is dealt with once"
    gone = {a.subject.name for a in actions if a.verb is Verb.DELETE and a.subject}
    gone |= {a.other.name for a in actions if a.verb is Verb.PROMOTE and a.other}
    data = [item for item in dirs if item.kind in (CURRENT, FUTURE)]
    for lost in (item for item in data if item.name in gone):
        stays = [item for item in data if item.name not in gone and item.topic_id == lost.topic_id]
        has_all = [item for item in stays if item.log_end_offset >= lost.log_end_offset]
        is_spare = lost.kind is FUTURE and any(item.kind is CURRENT and item.topic_id == lost.topic_id for item in data)
        assert has_all or is_spare, f"{lost} is lost"
    if metadata is not None and any(item.topic_id == TOPIC for item in data):
        assert Verb.CREATE not in verbs, "no empty log beside data of the same replica"

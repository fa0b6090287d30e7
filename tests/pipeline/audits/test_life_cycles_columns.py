"""Histories made column by column are those of the definition, and common ones are not left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.audits import life_cycles_columns
from kraftlab.pipeline.audits.life_cycles import Change, PartitionKey, all_life_cycles, partition_states
from kraftlab.pipeline.audits.life_cycles_arrow import COLUMNS, REASSIGNMENTS, REPLICAS, STATE
from kraftlab.pipeline.audits.list_columns import lists_of
from kraftlab.pipeline.storage.schemas import arrow_schema

Rows = list[tuple[PartitionKey, Change]]
SCHEMA = pa.schema([arrow_schema("silver.partition_changes").field(name) for name in COLUMNS])
KEYS = [PartitionKey(topic_id, name, partition) for topic_id, name in (("id-a", "a"), ("id-b", None)) for partition in (0, 1)]


def _ordered(rows: Rows) -> tuple[pa.Table, Any]:
    """The rows as they come, and how they are sorted."""
    table = pa.Table.from_pylist([{**key._asdict(), **change._asdict()} for key, change in rows], schema=SCHEMA)
    numbers = sorted(
        range(len(rows)), key=lambda at: (rows[at][0].topic_id, rows[at][0].partition, rows[at][1].offset, rows[at][1].kind)
    )
    return table, np.array(numbers, np.int64)


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row.values())


def _tables(rows: Rows, deletions: Any) -> dict[str, list[Any]]:
    tables: dict[str, list[Any]] = {REASSIGNMENTS: [], REPLICAS: [], STATE: []}
    for table, batch in life_cycles_columns.histories_of(*_ordered(rows), deletions):
        assert batch.schema == arrow_schema(table)
        batch.validate(full=True)
        tables[table] += map(_plain, batch.to_pylist())
    return tables


def _check(rows: Rows, deletions: Any = None) -> dict[str, list[Any]]:
    tables = _tables(rows, deletions or {})
    cycles = all_life_cycles(rows, deletions)
    expected = {
        REASSIGNMENTS: [tuple(cycle[:-1]) for cycle in cycles],
        REPLICAS: [(cycle.reassignment_id, *replica) for cycle in cycles for replica in cycle.replicas],
        STATE: list(map(tuple, partition_states(rows, None, deletions))),
    }
    for table, found in tables.items():
        assert sorted(found, key=repr) == sorted(expected[table], key=repr), table
    return tables


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_log_gives_what_the_definition_gives(logs: st.SearchStrategy[Rows], data: st.DataObject) -> None:
    rows = data.draw(logs)
    numbered = [(key, change._replace(offset=number)) for number, (key, change) in enumerate(rows)]
    _check(numbered, data.draw(st.dictionaries(st.just("id-a"), st.tuples(st.integers(0, len(rows)), st.just(50)))))


_REPLICAS = st.lists(st.integers(1, 7), min_size=1, max_size=4, unique=True).map(tuple)
_SOME = st.lists(st.integers(1, 7), max_size=4, unique=True).map(tuple)


@st.composite
def _histories(draw: st.DrawFn, odd: bool) -> Rows:
    """Partitions as a controller moves them; `odd` with what it hardly ever writes."""
    rows: Rows = []
    now = {}
    for key in draw(st.permutations(KEYS)):
        replicas = draw(_REPLICAS)
        now[key] = [replicas, (), (), replicas]
        directories = draw(st.sampled_from([None, (), ("d",) * len(replicas)])) if odd else draw(st.sampled_from([None, ()]))
        rows.append((key, Change(len(rows), 100, "create", replicas, replicas[0], replicas, (), (), directories)))
    for _ in range(draw(st.integers(0, 16))):
        key = draw(st.sampled_from(KEYS))
        replicas, adding, removing, orig = now[key]
        runs = bool(adding or removing)
        change: dict[str, Any] = {"isr": draw(st.none() | _SOME), "leader": draw(st.none() | st.integers(-1, 7))}
        move = draw(st.sampled_from(["start", "complete", "cancel", "plain", "plain", *(["any", "list"] if odd else [])]))
        if move == "start":
            new = draw(_SOME.filter(lambda found, members=replicas: not set(found) & set(members)))
            gone = tuple(sorted(draw(st.sets(st.sampled_from(replicas)))))
            if (new or gone) and (set(new), set(gone)) != (set(adding), set(removing)):
                orig = orig if runs else replicas
                replicas, adding, removing = replicas + new, new, gone
                change |= {"replicas": replicas, "adding": adding, "removing": removing}
                if draw(st.booleans()):
                    target = tuple(each for each in draw(st.permutations(replicas)) if each not in gone)
                    change |= {"original": orig, "target": target}
        elif move in ("complete", "cancel") and runs:
            kept = tuple(each for each in replicas if each not in removing) if move == "complete" else orig
            replicas = kept or orig
            change |= {"replicas": replicas, "adding": (), "removing": ()}
            adding, removing = (), ()
        elif move == "list":
            replicas = draw(st.permutations(replicas).map(tuple) | _REPLICAS)
            change |= {"replicas": replicas}
        elif move == "any":
            change |= {name: draw(st.none() | _SOME) for name in ("adding", "removing")}
            if None not in (change["adding"], change["removing"]):
                change |= {name: draw(st.none() | _SOME) for name in ("original", "target")}
            change["directories"] = draw(st.none() | st.just(("e",)))
            adding = adding if change["adding"] is None else change["adding"]
            removing = removing if change["removing"] is None else change["removing"]
        now[key] = [replicas, adding, removing, orig]
        rows.append((key, Change(len(rows), draw(st.integers(90, 130)), **change)))
    return rows


@given(_histories(odd=False))
@settings(max_examples=30, deadline=None)
def test_common_histories_are_the_definitions(rows: Rows) -> None:
    _check(rows)


@given(_histories(odd=True))
@settings(max_examples=30, deadline=None)
def test_unusual_histories_among_common_ones_are_the_definitions(rows: Rows) -> None:
    _check(rows)


def test_a_recorded_log(kafka: Any) -> None:
    assert len(_check(kafka.rows, kafka.deletions)[REASSIGNMENTS]) > 5


def test_common_histories_are_not_left_to_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_cycles_columns, "stepped", lambda *rows: pytest.fail("a partition was left"))
    key, other = KEYS[0], KEYS[3]
    rows = [
        (key, Change(0, 10, "create", (1, 2, 3), 1, (1, 2, 3), (), ())),
        (other, Change(1, 10, "create", (1, 2), 1, (1, 2), (), ())),
        (key, Change(2, 20, replicas=(4, 1, 2, 3), adding=(4,), removing=(3,))),
        (key, Change(3, 30, isr=(1, 2), leader=2)),
        (other, Change(4, 30, replicas=(1, 2, 5), adding=(5,), original=(1, 2), target=(1, 5, 2))),
        (key, Change(5, 40, replicas=(5, 1, 2, 3), adding=(5,), removing=(3,))),
        (key, Change(6, 35, isr=(1, 2, 5), leader=5, replicas=(5, 1, 2), adding=(), removing=())),
        (key, Change(7, 50, replicas=(5, 6, 1, 2), adding=(6,), removing=())),
        (key, Change(8, 60, replicas=(5, 1, 2), adding=(), removing=())),
    ]
    statuses = [row[7] for row in _check(rows)[REASSIGNMENTS]]
    assert sorted(statuses) == ["cancelled", "completed", "open", "superseded"]


@pytest.mark.parametrize("directories", [None, ("x", "y")], ids=["common", "left to the definition"])
def test_a_name_that_later_rows_alone_know_is_the_partitions(directories: tuple[str, ...] | None) -> None:
    early, late = PartitionKey("id-a", None, 0), PartitionKey("id-a", "a", 0)
    nameless = PartitionKey("id-b", None, 0)
    changes = [
        Change(0, 10, "create", (1, 2), 1, (1, 2), (), (), directories),
        Change(1, 20, replicas=(1, 2, 3), adding=(3,), removing=()),
        Change(2, 30, isr=(1, 2, 3), replicas=(1, 2, 3), adding=(), removing=()),
    ]
    rows = [(key, change) for change in changes for key in (nameless, early if change.offset < 2 else late)]
    tables = _tables(rows, {})
    assert sorted((row[0], row[1]) for row in tables[REASSIGNMENTS]) == [("a:0:1", "a"), ("id-b:0:1", None)]
    assert sorted((row[0], row[1]) for row in tables[STATE]) == [("id-a", "a"), ("id-b", None)]


def test_lists_side_by_side_compare_as_lists_and_as_sets() -> None:
    one = lists_of(pa.array([[1, 2], None, [3], [], [1, 2, 3]], pa.list_(pa.int32())), np.array([4, 0, 2, 3, 1]))
    other = lists_of(pa.array([[2, 1], [3], [1, 2, 3], [4], []], pa.list_(pa.int32())), np.array([2, 0, 3, 4, 1]))
    left, right = one.side_by_side(), other.side_by_side()
    assert one.arrow().to_pylist() == [[1, 2, 3], [1, 2], [3], [], []]
    assert left.equals(right).tolist() == [True, False, False, True, False]
    assert left.same_as(right).tolist() == [True, True, False, True, False]
    assert left.within(right).tolist() == [True, True, False, True, True]
    assert left.without(right).tolist() == [False, False, True, True, True]
    assert left.minus(right).arrow().to_pylist() == [[], [], [3], [], []]
    assert one.or_else(other).arrow().to_pylist() == [[1, 2, 3], [1, 2], [3], [], [3]]

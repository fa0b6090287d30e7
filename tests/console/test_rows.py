"""Rows against a naive twin: filters, sorts, slices and counts of any topics."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.client.results import Partition, Topic
from kraftlab.console.rows import ROWS_MAX, BadQuery, RowFilter, Rows

BROKERS = range(5)
STATES = ("offline", "urp", "under-min-isr", "moving", "skewed")
NAMES = st.text("ab.-_", min_size=1, max_size=3)
TOPIC_SORTS = ("name", "partitions", "replication_factor", *STATES)
PARTITION_SORTS = ("topic", "partition_index", "leader_id", "replica_nodes", "isr_nodes", "partition_epoch")


@st.composite
def partitions(draw: st.DrawFn, index: int) -> Partition:
    replicas = tuple(draw(st.permutations(BROKERS))[: draw(st.integers(1, 4))])
    some = st.sets(st.sampled_from(replicas)).map(lambda chosen: tuple(sorted(chosen)))
    isr, adding = draw(some), draw(st.just(()) | some)
    leader, epoch = draw(st.sampled_from([None, *isr])), draw(st.integers(0, 9))
    return Partition(index, leader, 0, replicas, isr, (), (), (), adding, (), (), (), epoch, ())


@st.composite
def topics(draw: st.DrawFn) -> dict[str, Topic]:
    """Topics in any order, as the answers of a cluster have them."""
    names = draw(st.lists(NAMES, unique=True, max_size=6))
    found = {}
    for name in names:
        those = tuple(draw(partitions(index)) for index in range(draw(st.integers(1, 4))))
        found[name] = Topic(name, f"id of {name}", draw(st.booleans()), those, ())
    return found


min_isrs = st.dictionaries(NAMES, st.integers(1, 3), max_size=4)
orders = st.sampled_from(["", "-"])
slices = st.tuples(st.integers(0, 12), st.integers(0, 12))
wanteds = st.builds(
    RowFilter,
    topic=st.just("") | NAMES,
    text=st.sampled_from(["", "a", "."]),
    internal=st.booleans(),
    broker=st.none() | st.sampled_from(BROKERS),
    state=st.sampled_from(["", *STATES]),
)


def holds(state: str, topic: Topic, each: Partition, min_isr: dict[str, int]) -> bool:
    """Return the same as `Rows.states`, from the definitions of Kafka."""
    match state:
        case "offline":
            return each.leader_id is None
        case "urp":
            return any(node not in each.isr_nodes and node not in each.adding_replicas for node in each.replica_nodes)
        case "under-min-isr":
            return len(each.isr_nodes) < min_isr.get(topic.name, 1)
        case "moving":
            return each.adding_replicas != () or each.removing_replicas != ()
        case _:
            return each.leader_id is not None and each.leader_id != each.replica_nodes[0]


def wanted_of(found: dict[str, Topic], wanted: RowFilter, min_isr: dict[str, int]) -> list[tuple[Topic, Partition]]:
    return [
        (topic, each)
        for topic in sorted(found.values(), key=lambda topic: topic.name)
        for each in topic.partitions
        if wanted.topic in ("", topic.name)
        and wanted.text in topic.name
        and (wanted.internal or not topic.is_internal)
        and (wanted.broker is None or wanted.broker in each.replica_nodes)
        and (wanted.state == "" or holds(wanted.state, topic, each, min_isr))
    ]


def ordered(rows: list[dict[str, object]], sort: str, order: str) -> list[dict[str, object]]:
    """Sort by insertion, which keeps the order of equals. None is before every value."""
    done: list[dict[str, object]] = []
    for row in rows:
        key = (row[sort] is not None, row[sort])
        at = len(done)
        while at and (
            key < (done[at - 1][sort] is not None, done[at - 1][sort])  # type: ignore[operator]
            if order == ""
            else key > (done[at - 1][sort] is not None, done[at - 1][sort])  # type: ignore[operator]
        ):
            at -= 1
        done.insert(at, row)
    return done


@given(topics(), min_isrs, wanteds, st.sampled_from(PARTITION_SORTS), orders, slices)
def test_a_page_of_partitions_is_a_slice_of_those_wanted_in_order(
    found: dict[str, Topic], min_isr: dict[str, int], wanted: RowFilter, sort: str, order: str, window: tuple[int, int]
) -> None:
    start, limit = window
    page = Rows(found, 7, min_isr).partition_page(wanted, order + sort, start, limit)
    rows = [
        {
            "topic": topic.name,
            "states": [state for state in STATES if holds(state, topic, each, min_isr)],
            **msgspec.structs.asdict(each),
        }
        for topic, each in wanted_of(found, wanted, min_isr)
    ]
    expected = ordered(rows, sort, order)
    assert page == {"offset": 7, "total": len(rows), "from": start, "rows": expected[start : start + limit]}


@given(topics(), min_isrs, wanteds, st.sampled_from(TOPIC_SORTS), orders, slices)
def test_a_page_of_topics_has_those_with_a_wanted_partition(
    found: dict[str, Topic], min_isr: dict[str, int], wanted: RowFilter, sort: str, order: str, window: tuple[int, int]
) -> None:
    start, limit = window
    page = Rows(found, None, min_isr).topic_page(wanted, order + sort, start, limit)
    names = dict.fromkeys(topic.name for topic, _ in wanted_of(found, wanted, min_isr))
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "topic_id": f"id of {name}",
            "is_internal": found[name].is_internal,
            "partitions": len(found[name].partitions),
            "replication_factor": max(len({*each.replica_nodes} - {*each.adding_replicas}) for each in found[name].partitions),
            **{state: sum(1 for each in found[name].partitions if holds(state, found[name], each, min_isr)) for state in STATES},
        }
        for name in names
    ]
    expected = ordered(rows, sort, order)
    assert page == {"offset": None, "total": len(rows), "from": start, "rows": expected[start : start + limit]}


@given(topics(), min_isrs)
def test_each_count_is_the_total_of_its_filter(found: dict[str, Topic], min_isr: dict[str, int]) -> None:
    rows = Rows(found, 0, min_isr)
    totals = {state: rows.partition_page(RowFilter(state=state), "", 0, 0)["total"] for state in STATES}
    everything = {"topics": len(found), "partitions": rows.partition_page(RowFilter(), "", 0, 0)["total"]}
    assert rows.counts() == {**everything, **totals}


@given(topics())
def test_a_broker_has_as_many_replicas_as_partitions_name_it(found: dict[str, Topic]) -> None:
    rows = Rows(found, 0, {})
    totals = {broker: rows.partition_page(RowFilter(broker=broker), "", 0, 0)["total"] for broker in BROKERS}
    assert {broker: count["replicas"] for broker, count in rows.by_broker().items()} == {
        broker: total for broker, total in totals.items() if total
    }
    leaders = [each.leader_id for topic in found.values() for each in topic.partitions if each.leader_id is not None]
    assert sum(count["leads"] for count in rows.by_broker().values()) == len(leaders)


@given(topics(), topics(), st.sets(NAMES), min_isrs, min_isrs)
def test_counts_that_are_taken_over_from_earlier_rows_are_those_of_new_ones(
    earlier: dict[str, Topic], later: dict[str, Topic], kept: set[str], earlier_isr: dict[str, int], min_isr: dict[str, int]
) -> None:
    later |= {name: topic for name, topic in earlier.items() if name in kept}
    before = Rows(earlier, 1, earlier_isr)
    before.counts()
    taken, new = Rows(later, 2, min_isr, before), Rows(later, 2, min_isr)
    assert taken.counts() == new.counts()
    assert taken.by_broker() == new.by_broker()
    assert taken.topic_page(RowFilter(), "", 0, 50) == new.topic_page(RowFilter(), "", 0, 50)


def test_a_page_has_500_rows_at_most() -> None:
    each = Partition(0, 0, 0, (0,), (0,), (), (), (), (), (), (), (), 0, ())
    wide = Topic("wide", "id", False, tuple(msgspec.structs.replace(each, partition_index=at) for at in range(600)), ())
    page = Rows({"wide": wide}, 0, {}).partition_page(RowFilter(), "-partition_index", 0, 10_000)
    rows = page["rows"]
    assert isinstance(rows, list)
    assert (page["total"], len(rows), rows[0]["partition_index"]) == (600, ROWS_MAX, 599)


@pytest.mark.parametrize(
    ("wanted", "sort", "message"), [(RowFilter(state="lost"), "", "no state 'lost'"), (RowFilter(), "size", "by 'size'")]
)
def test_an_unknown_state_or_order_is_refused_and_the_known_ones_are_named(wanted: RowFilter, sort: str, message: str) -> None:
    for page in (Rows({}, 0, {}).topic_page, Rows({}, 0, {}).partition_page):
        with pytest.raises(BadQuery, match=f"{message}; there are .*"):
            page(wanted, sort, 0, 10)

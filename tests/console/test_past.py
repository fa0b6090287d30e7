"""The past in words and images: from the ring, from a node's disk, and over the edges of spans, batches and cleaned logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from kraftlab.console import past
from kraftlab.console.follower import Follower
from kraftlab.console.past import EVENTS_MAX, SPANS_MAX, Past
from kraftlab.console.rows import BadQuery
from kraftlab.console.streams import Streams
from kraftlab.metadata.moves import PlannedPartition
from kraftlab.metadata.records import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AbortTransaction,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    MovePlan,
    NoOp,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UserScramCredential,
)

from .scripted_log import ScriptedClient, ScriptedLog, ScriptedNode, endpoints

SPAN_OFFSETS = 20


class Lab:
    """A log at one node, and the past of a follower that begins with the newest image: nothing is in the ring yet."""

    def __init__(self, log: ScriptedLog) -> None:
        self.log = log
        self.node = ScriptedNode(log)
        self.client = ScriptedClient({endpoints(1)[0]: self.node})
        self.follower = Follower(self.client.as_client(), endpoints(1), Streams())
        self.past = Past(self.client.as_client(), self.follower)
        self.follow()

    def follow(self) -> None:
        while self.follower.image is None or self.follower.image.provenance.offset < self.log.end:
            self.follower.step()

    def events(
        self,
        *,
        before: int | None = None,
        after: int = 0,
        kind: str = "",
        about: str = "",
        limit: int = EVENTS_MAX,
        internal: bool = True,
    ) -> list[Any]:
        """Return all events, over as many requests as they need."""
        found: list[Any] = []
        while True:
            answer: Any = self.past.events(before, after, kind, about, limit, internal=internal)
            found += answer["events"]
            before = answer["next"]
            if before is None:
                return found

    def words(self, **filters: Any) -> list[str]:
        """Return the events as lines, oldest first."""
        return [f"{each.about}: {each.change.change}" for each in reversed(self.events(**filters))]


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


@pytest.fixture
def loop() -> Iterator[None]:
    """Streams are made on an event loop; these tests need no more of it. Spans are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past, "SPAN_OFFSETS", SPAN_OFFSETS)
        patch.setattr(trio.lowlevel, "current_trio_token", _Token)
        yield


class _Token:
    def run_sync_soon(self, function: object) -> None:
        """Do nothing: nobody reads the streams."""


pytestmark = pytest.mark.usefixtures("loop")


# -- events --------------------------------------------------------------------------------------------------------------------


def test_events_are_newest_first_and_each_is_told_once_whatever_the_pages(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    for number in range(30):
        log.shrink(topic, *((0, 1) if number % 3 else (0,)))
        log.no_ops(4)
    lab = Lab(log)
    whole = lab.events()
    offsets = [each.change.offset for each in whole]
    assert offsets == sorted(offsets, reverse=True)
    assert len(whole) == 32
    assert lab.events(limit=1) == lab.events(limit=7) == whole


def test_a_batch_over_the_edge_of_a_span_is_told_once(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    log.no_ops(SPAN_OFFSETS - log.end - 1)
    log.append(*(PartitionChange(0, 0, topic, isr=isr) for isr in ((0,), (0, 1), (1,))))
    log.no_ops(SPAN_OFFSETS)
    lab = Lab(log)
    assert [each.change.offset for each in lab.events(about="orders-0")] == [
        SPAN_OFFSETS + 1,
        SPAN_OFFSETS,
        SPAN_OFFSETS - 1,
        1,
    ]


def test_the_ring_and_the_disk_meet_without_a_gap(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    log.shrink(topic, 0)
    lab = Lab(log)
    log.shrink(topic, 0, 1)
    lab.follow()
    assert len(lab.follower.known.ring) == 1
    assert lab.words(about="orders-0") == [
        "orders-0: is created: replicas [0,1], isr [0,1], leader 0",
        "orders-0: isr: [0,1] -> [0] (loses 1); leader: 0, in a new epoch",
        "orders-0: isr: [0] -> [0,1] (gains 1); leader: 0, in a new epoch",
    ]


def test_only_what_comes_after_an_offset_is_told_where_it_is_asked_for(log: ScriptedLog) -> None:
    log.topic("orders")
    end = log.end
    log.topic("payments", 2)
    assert {each.about for each in Lab(log).events(after=end)} == {"payments", "payments-0"}


def test_events_have_their_object_kind_and_partition(log: ScriptedLog) -> None:
    log.topic("orders-1")
    log.append(RegisterBroker(0, 7, bytes(16), 1), Config(0, RESOURCE_BROKER, "", "min.insync.replicas", "2"))
    log.elect(3, 1, 3)
    log.append(FeatureLevel(0, "metadata.version", 30))
    found = [(each.kind, each.about, each.partition) for each in reversed(Lab(log).events())]
    assert found == [
        ("topic", "orders-1", None),
        ("topic", "orders-1-0", 0),
        ("broker", "broker 7", None),
        ("broker", "all brokers", None),
        ("quorum", "quorum", None),
        ("other", "feature level", None),
    ]


def test_events_are_filtered_by_kind_and_by_object_whose_number_is_whole(log: ScriptedLog) -> None:
    log.topic("orders")
    for broker in (1, 10):
        log.append(RegisterBroker(0, broker, bytes(16), 1))
    lab = Lab(log)
    assert [each.about for each in lab.events(kind="broker")] == ["broker 10", "broker 1"]
    assert [each.about for each in lab.events(about="broker 1")] == ["broker 1"]
    assert [each.about for each in lab.events(about="ORD")] == ["orders-0", "orders"]
    with pytest.raises(BadQuery, match="there is no kind 'brokers'; there are quorum, broker, topic, other"):
        lab.events(kind="brokers")


def test_events_may_leave_internal_topics_out(log: ScriptedLog) -> None:
    log.topic("__consumer_offsets", 1)
    log.topic("orders", 2)
    lab = Lab(log)
    assert [each.about for each in lab.events(internal=False)] == ["orders-0", "orders"]
    assert [each.about for each in lab.events()] == ["orders-0", "orders", "__consumer_offsets-0", "__consumer_offsets"]


def test_configs_of_a_topic_are_its_events_also_after_it_is_deleted(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    log.append(Config(0, RESOURCE_TOPIC, "orders", "retention.ms", "5"))
    log.append(RemoveTopic(0, topic))
    log.topic("orders", 2)
    assert [each for each in Lab(log).words() if each.startswith("orders:")] == [
        f"orders: topic orders is created, id {'A' * 21}Q",
        "orders: config retention.ms = 5",
        "orders: topic orders is deleted",
        f"orders: topic orders is created, id {'A' * 21}g",
    ]


def test_a_plan_is_told_for_each_of_its_partitions_with_who_asked(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    planned = PlannedPartition(topic, 0, "orders", (0, 1), (), (1, 2))
    log.append(MovePlan(0, "p1", 0, 0, "User:ann", "spread", (planned,)))
    event = Lab(log).events(about="orders-0")[0]
    assert (event.change.initiator, event.change.plan_id, event.change.reason) == ("User:ann", "p1", "spread")


def test_records_of_an_aborted_transaction_do_not_count(log: ScriptedLog) -> None:
    first, second = (number.to_bytes(16, "big") for number in (1, 2))
    log.append(BeginTransaction(0, "create"), Topic(0, "lost", first))
    log.append(Partition(0, 0, first, (0,), (0,)))
    log.append(AbortTransaction(0, "the controller failed over"))
    log.append(BeginTransaction(0, "create"), Topic(0, "kept", second))
    log.append(Partition(0, 0, second, (0,), (0,)), EndTransaction(0))
    assert Lab(log).words() == [
        "abort transaction: a metadata transaction is aborted: the controller failed over; its records do not count",
        f"kept: topic kept is created, id {'A' * 21}g",
        "kept-0: is created: replicas [0], isr [0], leader -1",
    ]


def test_a_batch_with_very_many_events_is_cut_in_words(log: ScriptedLog) -> None:
    topic = (1).to_bytes(16, "big")
    log.append(Topic(0, "wide", topic), *(Partition(0, number, topic, (0,), (0,)) for number in range(1000)))
    lab = Lab(log)
    assert lab.words()[-1] == "…: 801 more changes by the same batch; name an object to see its own"
    assert len(lab.events(about="wide-777")) == 1


def test_one_request_reads_a_bounded_part_of_a_long_log(log: ScriptedLog) -> None:
    log.topic("orders")
    log.no_ops((SPANS_MAX + 3) * SPAN_OFFSETS)
    lab = Lab(log)
    lab.client.calls.clear()
    answer = lab.past.events(None, 0, "", "", 10)
    assert (answer["events"], answer["next"]) == ([], 4 * SPAN_OFFSETS)
    assert [each.change.offset for each in lab.events()] == [1, 0]


# -- images --------------------------------------------------------------------------------------------------------------------


def names_at(lab: Lab, at: str) -> list[Any]:
    entries: Any = lab.past.tree(at, "topics/byName", "")["entries"]
    return [each["name"] for each in entries]


def test_every_offset_has_the_image_after_the_last_whole_batch_from_the_disk_and_from_the_ring(log: ScriptedLog) -> None:
    log.topic("first", 1)
    lab = Lab(log)
    log.topic("second", 2)
    log.topic("third", 3)
    lab.follow()
    assert [len(names_at(lab, str(offset)) if offset >= 2 else []) for offset in range(7)] == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("at", "topics"),
    [
        ("now", 3),
        ("", 3),
        ("4", 2),
        ("@2999", 2),
        ("@3000", 3),
        ("@999999999999999", 3),
        ("1970-01-01T00:00:02Z", 2),
        ("1970-01-01T01:00:01+01:00", 1),
        ("1970-01-01 00:00:01", 1),
    ],
)
def test_moments(log: ScriptedLog, at: str, topics: int) -> None:
    for number in (1, 2, 3):
        log.topic(f"t{number}", number)
    assert len(names_at(Lab(log), at)) == topics


def test_an_offset_that_is_not_written_yet_is_no_moment(log: ScriptedLog) -> None:
    log.topic("orders")
    with pytest.raises(BadQuery, match="the log ends at offset 2, and 999999999999999999 is not written yet"):
        Lab(log).past.difference("1", "999999999999999999", "")


@pytest.mark.parametrize("at", ["-1", "1.5", "yesterday", "٣", "9" * 30, "@", "2026-13-01", "x" * 10_000])
def test_no_moments(log: ScriptedLog, at: str) -> None:
    log.topic("orders")
    with pytest.raises(BadQuery, match="is not a moment; give an offset, now, a time as") as raised:
        Lab(log).past.tree(at, "", "")
    assert len(str(raised.value)) < 200


def test_a_moment_that_the_log_no_longer_has_is_refused_with_the_earliest(log: ScriptedLog) -> None:
    log.topic("orders")
    log.no_ops(98)
    lab = Lab(log)
    lab.node.first = 50
    message = r"the earliest moment that exists is offset 50 \(1970-01-01T00:00:49Z\); ask for that or a later one"
    for at in ("1", "@2000"):
        with pytest.raises(BadQuery, match=message):
            lab.past.tree(at, "", "")
    assert names_at(lab, "50") == ["orders"]


def test_events_of_a_cleaned_log_end_at_its_first_image(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    log.no_ops(98)
    log.shrink(topic, 0)
    lab = Lab(log)
    lab.node.first = 50
    assert lab.words() == ["orders-0: isr: [0,1] -> [0] (loses 1); leader: 0, in a new epoch"]


def test_the_tree_finds_names_and_says_what_is_missing(log: ScriptedLog) -> None:
    for number in range(1, 700):
        log.append(Topic(0, f"topic.{number}", number.to_bytes(16, "big")))
    lab = Lab(log)
    root: Any = lab.past.tree("", "topics/byName", "")
    assert (root["total"], len(root["entries"])) == (699, 500)
    found: Any = lab.past.tree("", "topics/byName", "C.69")
    assert [each["name"] for each in found["entries"]] == ["topic.69", *(f"topic.{number}" for number in range(690, 700))]
    leaf: Any = lab.past.tree("", "topics/byName/topic.1/name", "")
    assert leaf["entries"] == [{"name": "name", "value": "topic.1"}]
    with pytest.raises(BadQuery, match="there is no 'topics/byName/nothing' at offset 699"):
        lab.past.tree("", "topics/byName/nothing", "")


# -- the difference of two moments ---------------------------------------------------------------------------------------------


def test_the_difference_has_fields_before_and_after(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    end = log.end
    log.append(PartitionChange(0, 0, topic, isr=(0,)))
    found: Any = Lab(log).past.difference(str(end), "now", "ISR")
    assert found["total"] == 0, "paths are filtered, not fields"
    found = Lab(log).past.difference(str(end), "now", "orders")
    assert [(each["path"], each["change"]) for each in found["changes"]] == [("topics/byName/orders/0", "changed")]
    assert found["changes"][0]["fields"]["isr"] == {"before": [0, 1], "after": [0]}


def test_both_images_of_a_difference_come_from_one_node_which_masks_secrets_with_its_own_key(log: ScriptedLog) -> None:
    log.append(UserScramCredential(0, "ann", 1, b"salt", b"stored", b"server", 4096))
    lab = Lab(log)
    log.topic("orders")
    lab.follow()
    lab.client.calls.clear()
    lab.past.difference("0", "now", "")
    asked = [each.offset for each in lab.client.calls if type(each).__name__ == "DescribeImageRequest"]
    assert asked == [0, log.end]
    lab.client.calls.clear()
    lab.past.difference("1", "now", "")
    assert lab.client.calls == [], "both are in the ring"


# -- marks and history ---------------------------------------------------------------------------------------------------------


def test_marks_are_of_changes_and_elections_and_say_how_long_there_was_silence(log: ScriptedLog) -> None:
    log.topic("orders")
    log.no_ops(3)
    log.elect(2, 2, 3)
    log.no_ops(SPAN_OFFSETS)
    found: Any = Lab(log).past.marks()
    assert [(each.base_offset, each.end_offset) for each in found["marks"]] == [(0, 2), (5, 6)]
    assert [(each.leader, each.epoch, each.granted, each.silent_ms) for each in found["elections"]] == [(2, 2, (2, 3), 1000)]
    assert (found["first"], found["since"], found["newest"]) == (0, 0, log.end)


def test_the_history_of_a_partition_reaches_back_before_the_first_snapshot_left(log: ScriptedLog) -> None:
    topic = log.topic("orders")
    log.shrink(topic, 0)
    log.no_ops(20)
    log.shrink(topic, 0, 1)
    lab = Lab(log)
    assert [each.offset for each in lab.past.history("orders", 0)] == [0, 1, 2, 23]
    lab.node.first = 10
    assert [each.change for each in lab.past.history("orders", 0)] == ["isr: [0] -> [0,1] (gains 1); leader: 0, in a new epoch"]
    with pytest.raises(LookupError, match="topic orders has no partition 9; it has 0"):
        lab.past.history("orders", 9)


def test_questions_before_the_first_image_are_refused(log: ScriptedLog) -> None:
    client = ScriptedClient({})
    past = Past(client.as_client(), Follower(client.as_client(), endpoints(1), Streams()))
    with pytest.raises(BadQuery, match="the metadata log has not been read yet; is the cluster up"):
        past.events(None, 0, "", "", 1)


def test_no_ops_are_no_events(log: ScriptedLog) -> None:
    log.append(NoOp(0))
    assert Lab(log).events() == []

"""A broker's metrics against what brokers in one process have done."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kraftlab.broker import replica_figures
from kraftlab.broker.control.lifecycle import BrokerState
from kraftlab.broker.metrics import MOVE_STATES, BrokerMetrics, PartsWithNumbers, of_reassignment
from kraftlab.broker.replica_figures import OF_LEADERS, LeaderNumbers, ReplicaFigures, leader_numbers
from kraftlab.broker.upkeep.disk_space import DiskSpace, Space
from kraftlab.broker.upkeep.move_reports import MoveReports
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.peer_rpc import FetchPartition, MoveProgress, ReplicaFetchRequest
from kraftlab.metadata.records import RESOURCE_TOPIC
from kraftlab.metrics.exposition import Exposition
from kraftlab.records.record_batch import Record, build_batch

from ..helpers.waiting import eventually
from .conftest import batch

TRAFFIC = "kafka_server_brokertopicmetrics"
MANAGER = "kafka_server_replicamanager"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parts_of(broker: Any) -> PartsWithNumbers:
    lifecycle: Any = SimpleNamespace(state=BrokerState.RUNNING)
    reports = MoveReports(broker, broker.replicas, lambda: broker.epoch)
    return PartsWithNumbers(lifecycle, broker.replicas, broker.groups, reports, DiskSpace(broker.logs, broker.disks))


def metrics_of(broker: Any) -> BrokerMetrics:
    publisher: Any = SimpleNamespace(image=broker.world.image, errors=0)
    driver: Any = None
    metrics = BrokerMetrics(broker.broker_id, driver, publisher, broker.config.metrics_partitions)
    metrics.built(parts_of(broker))
    return metrics


def samples_of(page: Exposition) -> Samples:
    families = text_string_to_metric_families(page.text())
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


class Scrape:
    """The samples of one scrape of a broker."""

    def __init__(self, broker: Any) -> None:
        page = Exposition()
        metrics_of(broker).snapshot()(page)
        self.samples = samples_of(page)

    def __call__(self, name: str, **labels: object) -> float:
        return self.samples[name, frozenset((key, str(value)) for key, value in labels.items())]

    def has(self, name: str, **labels: object) -> bool:
        return (name, frozenset((key, str(value)) for key, value in labels.items())) in self.samples


async def consume(broker: Any, topic: str, offset: int = 0) -> int:
    """Fetch partition 0 as a consumer; return the bytes of its records."""
    topic_id = broker.world.image.topics.by_name[topic]
    wanted = FetchPartition(topic_id, 0, -1, offset, -1, -1, 1_000_000)
    response = await broker.fetches.fetch(ReplicaFetchRequest(-1, -1, 0, 1, 1_000_000, (wanted,)))
    return len(response.partitions[0].records)


# --- traffic -----------------------------------------------------------------------------------------------------------------


async def test_what_is_produced_and_consumed_counts_for_its_topic_and_for_all(autojump_clock: Any, world: Any) -> None:
    [broker] = await world.add_brokers(1)
    for topic in ("t", "u"):
        await world.create_topic(topic, [0])
    sent = [batch(3), batch(2)]
    for records in sent:
        await broker.produce("t", 0, records)
    read = await consume(broker, "t")
    scraped = Scrape(broker)
    for labels in ({}, {"topic": "t"}):
        assert scraped(f"{TRAFFIC}_messagesin_total", **labels) == 5
        assert scraped(f"{TRAFFIC}_bytesin_total", **labels) == sum(map(len, sent)) == read
        assert scraped(f"{TRAFFIC}_bytesout_total", **labels) == read
        assert scraped(f"{TRAFFIC}_totalproducerequests_total", **labels) == 2
        assert scraped(f"{TRAFFIC}_totalfetchrequests_total", **labels) == 1
    assert not scraped.has(f"{TRAFFIC}_messagesin_total", topic="u"), "a series appears with its first event"
    assert scraped(f"{TRAFFIC}_failedproducerequests_total") == 0


async def test_a_batch_that_is_sent_again_counts_once(autojump_clock: Any, world: Any) -> None:
    [broker] = await world.add_brokers(1)
    await world.create_topic("t", [0])
    first, second = (build_batch([Record(None, b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=at) for at in range(2))
    await broker.produce("t", 0, first)
    await broker.produce("t", 0, first)
    await broker.produce("t", 0, first + second)
    scraped = Scrape(broker)
    assert scraped(f"{TRAFFIC}_messagesin_total", topic="t") == 2
    assert scraped(f"{TRAFFIC}_bytesin_total", topic="t") == len(first + second)
    assert scraped(f"{MANAGER}_produceridcount") == 1


async def test_a_deleted_topic_takes_its_series_along_and_all_topics_keep_theirs(autojump_clock: Any, world: Any) -> None:
    [broker] = await world.add_brokers(1)
    await world.create_topic("t", [0])
    await broker.produce("t", 0, batch(3))
    before = broker.partition("t", 0)
    await world.delete_topic("t")
    broker.replicas.traffic.consumed(before.traffic, 10)
    await world.create_topic("t", [0])
    await broker.produce("t", 0, batch(1))
    scraped = Scrape(broker)
    assert scraped(f"{TRAFFIC}_messagesin_total", topic="t") == 1
    assert scraped(f"{TRAFFIC}_messagesin_total") == 4
    assert not scraped.has(f"{TRAFFIC}_bytesout_total", topic="t"), "what comes late counts for the topic of before"


async def test_a_request_fails_if_the_broker_is_to_blame(autojump_clock: Any, world: Any) -> None:
    broker, other = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.configure(RESOURCE_TOPIC, "t", min_insync_replicas="2")
    other.crash()
    await world.change("t", 0, isr=(0,))
    assert (await broker.produce("t", 0, batch())).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await other.produce("t", 0, batch())).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    scraped = Scrape(broker)
    for labels in ({}, {"topic": "t"}):
        assert scraped(f"{TRAFFIC}_failedproducerequests_total", **labels) == 1
        assert scraped(f"{TRAFFIC}_totalproducerequests_total", **labels) == 1
    assert other.replicas.traffic.total.failed_produce_requests == 0
    assert other.replicas.traffic.total.produce_requests == 1


async def test_bytes_of_a_reassignment_are_among_those_of_replication(autojump_clock: Any, world: Any) -> None:
    leader, follower, added = await world.add_brokers(3)
    await world.create_topic("t", [0, 1])
    size = await world.fill(10, 1_000)
    await world.add_replica(0, 2)
    moving = Scrape(leader)
    assert moving(f"{MANAGER}_reassigningpartitions") == 1
    assert moving(f"{MANAGER}_underreplicatedpartitions") == 0, "a replica that is added is not missed (KIP-352)"
    await eventually(lambda: 2 in world.state("t", 0).isr, "the added replica is in sync")
    assert follower.replicas.traffic.replication_bytes_in == size
    at_leader, at_added = Scrape(leader), Scrape(added)
    assert at_leader(f"{TRAFFIC}_replicationbytesout_total") == 2 * size
    assert at_leader(f"{TRAFFIC}_reassignmentbytesout_total") == size
    assert at_added(f"{TRAFFIC}_replicationbytesin_total") == at_added(f"{TRAFFIC}_reassignmentbytesin_total") == size
    assert at_leader(f"{MANAGER}_isrexpands_total") == 1
    assert at_leader(f"{TRAFFIC}_bytesout_total") == 0, "followers are no consumers"


async def test_a_shrink_of_the_isr_and_a_refused_change_count(autojump_clock: Any, world: Any) -> None:
    leader, _ = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    world.refuse_isr_with = ErrorCode.INELIGIBLE_REPLICA
    world.brokers[1].crash()
    await leader.produce("t", 0, batch(), acks=1)
    await eventually(lambda: leader.replicas.traffic.failed_isr_updates >= 1, "the controller refuses", 120)
    assert leader.replicas.traffic.isr_shrinks == 0
    world.refuse_isr_with = 0
    await eventually(lambda: world.state("t", 0).isr == (0,), "the follower is out of sync", 120)
    await eventually(lambda: Scrape(leader)(f"{MANAGER}_isrshrinks_total") == 1, "the leader knows", 10)
    assert Scrape(leader)(f"{MANAGER}_underreplicatedpartitions") == 1


# --- replicas ----------------------------------------------------------------------------------------------------------------

BROKERS = st.lists(st.integers(0, 4), min_size=1, unique=True).map(tuple)


@given(BROKERS, BROKERS, BROKERS, st.integers(1, 4))
def test_the_leaders_numbers_equal_a_count_one_by_one(
    replicas: tuple[int, ...], isr: tuple[int, ...], adding: tuple[int, ...], min_isr: int
) -> None:
    isr = tuple(each for each in isr if each in replicas)
    adding = tuple(each for each in adding if each in replicas)
    original = tuple(each for each in replicas if each not in adding)
    state = PartitionImage(replicas, (b"",) * len(replicas), isr, adding=adding, original=original if adding else ())
    numbers = leader_numbers(state, min_isr)
    missing = [each for each in replicas if each not in isr and each not in adding]
    assert numbers.under_replicated == bool(missing)
    assert (numbers.replicas, numbers.in_sync) == (len(replicas), len(isr))
    if not adding:
        assert numbers.under_min_isr == (len(isr) < min(min_isr, len(replicas)))
        assert numbers.at_min_isr == (len(isr) == min(min_isr, len(replicas)))


def test_the_numbers_are_in_the_order_of_their_families() -> None:
    short = [name.removeprefix("kafka_cluster_partition_") for name in OF_LEADERS]
    assert short == [
        {"replicas": "replicascount", "in_sync": "insyncreplicascount", "stable_offset_lag": "laststableoffsetlag"}.get(
            field, field.replace("_", "")
        )
        for field in LeaderNumbers._fields
    ]


async def test_kept_lines_equal_new_ones_after_every_kind_of_change(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_figures, "BLOCK", 2)
    broker, _ = await world.add_brokers(2)
    await world.create_topic("t", [0], [1, 0])
    await world.create_topic("gone", [0])
    kept = ReplicaFigures(broker.replicas, has_lines=True)

    def same() -> Samples:
        partitions = list(broker.replicas.partitions.values())
        pages = Exposition(), Exposition()
        sums = kept.write(pages[0], partitions, partitions)
        new = ReplicaFigures(broker.replicas, has_lines=True).write(pages[1], partitions, partitions)
        assert vars(sums) == vars(new)
        assert pages[0].text() == pages[1].text()
        return samples_of(pages[0])

    same()
    size = await world.fill(3, 500)
    log = frozenset({("topic", "t"), ("partition", "0")})
    assert same()["kafka_log_log_size", log] == size
    await world.configure(RESOURCE_TOPIC, "t", min_insync_replicas="1")
    assert same()["kafka_cluster_partition_atminisr", log] == 1
    broker.log("t", 0).truncate_to(1)
    assert same()["kafka_log_log_logendoffset", log] == 1
    await world.fill(2, 499)
    assert same()["kafka_log_log_logendoffset", log] == 3, "the end of before, with other records"
    await broker.alter(broker.other_dir())
    future = log | {("is_future", "true")}
    assert ("kafka_log_log_size", future) in same()
    await eventually(lambda: not broker.mover.moves, "the replica has moved")
    assert ("kafka_log_log_size", future) not in same()
    await world.delete_topic("gone")
    assert not [key for key in same() if ("topic", "gone") in key[1]]
    await world.fill(1, 100, number=1)
    await eventually(lambda: same()["kafka_log_log_logendoffset", frozenset({("topic", "t"), ("partition", "1")})] == 1, "copied")
    await broker.lose(broker.log("t", 0).log_dir)
    assert ("kafka_log_log_size", log) not in same()
    assert Scrape(broker)(f"{MANAGER}_offlinereplicacount") >= 1
    assert Scrape(broker)("kafka_log_logmanager_offlinelogdirectorycount") == 1


@pytest.mark.parametrize("detail", ["full", "topics", "off"])
async def test_series_of_partitions_and_topics_can_be_left_out(autojump_clock: Any, world: Any, detail: str) -> None:
    """The key is metrics.partitions."""
    broker = await world.add_broker(0, metrics_partitions=detail)
    await world.create_topic("t", [0])
    size = await world.fill(1, 100)
    scraped = Scrape(broker)
    assert scraped.has("kafka_log_log_size", topic="t", partition=0) == (detail == "full")
    assert scraped.has(f"{TRAFFIC}_messagesin_total", topic="t") == (detail != "off")
    assert scraped(f"{TRAFFIC}_messagesin_total") == 1
    assert scraped(f"{MANAGER}_leadercount") == 1
    assert scraped("kraftlab_log_dir_used_bytes", log_dir=broker.log("t", 0).log_dir) == size


# --- moves and disks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "is_throttled", "error", "state"),
    [
        (-1, False, "", "COPYING"),
        (5, False, "", "COPYING"),
        (5, True, "", "THROTTLED"),
        (0, True, "", "OUT_OF_SYNC"),
        (5, True, "no log yet", "NOT_FETCHING"),
    ],
)
def test_a_replica_that_is_filled_has_the_state_of_the_list_of_reassignments(
    left: int, is_throttled: bool, error: str, state: str
) -> None:
    found = of_reassignment(MoveProgress(b"", 0, 10, left, 2.0, is_throttled, error))
    assert found.state == state
    assert state in MOVE_STATES


async def test_a_throttled_move_between_directories_shows_its_bytes(autojump_clock: Any, world: Any) -> None:
    [broker] = await world.add_brokers(1)
    await world.create_topic("t", [0])
    size = await world.fill(20, 10_000)
    await world.configure(4, "0", replica_alter_log_dirs_io_max_bytes_per_second="10000")
    await broker.alter(broker.other_dir())
    await trio.sleep(5)
    scraped = Scrape(broker)
    assert scraped("kraftlab_move_blocked", state="THROTTLED") == 1
    done = scraped("kraftlab_move_bytes_done")
    assert 0 < done < size
    assert scraped("kraftlab_move_bytes_left") == size - done
    assert 5_000 < scraped("kraftlab_move_rate_bytes_per_second") < 20_000
    assert scraped("kafka_server_replicaalterlogdirsmanager_maxlag", clientId="ReplicaAlterLogDirs") > 0
    assert scraped("kafka_server_fetcherlagmetrics_consumerlag", clientId="ReplicaAlterLogDirs", topic="t", partition=0) > 0


async def test_a_disk_that_hangs_leaves_the_last_answer(autojump_clock: Any, world: Any) -> None:
    [broker] = await world.add_brokers(1)
    answers = {log_dir: Space(100, 10) for log_dir in broker.dirs}
    hung: set[Path] = set()

    class StubDisks:
        async def run(self, log_dir: Path, work: object, *args: object) -> Any:
            if log_dir in hung:
                await trio.sleep_forever()
            return SimpleNamespace(f_frsize=1, f_blocks=answers[log_dir].total_bytes, f_bavail=answers[log_dir].usable_bytes)

    disks: Any = StubDisks()
    space = DiskSpace(broker.logs, disks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(space.run)
        await eventually(lambda: space.known == answers, "both are known")
        hangs, works = broker.dirs
        hung.add(hangs)
        answers |= {hangs: Space(100, 5), works: Space(100, 5)}
        await eventually(lambda: space.known[works] == Space(100, 5), "the other disk answers again", 30)
        assert space.known[hangs] == Space(100, 10)
        nursery.cancel_scope.cancel()

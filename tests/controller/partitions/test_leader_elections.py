"""ElectLeaders, and the elections that the active controller holds itself."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine.background import background_tasks
from kraftlab.controller.partitions import leader_elections
from kraftlab.controller.partitions.leader_elections import PREFERRED, UNCLEAN, elect_leaders
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC

SET, DELETE = 0, 1
NOT_NEEDED = "Leader election not needed for topic partition."
NO_PREFERRED = "The preferred leader was not available."
NOBODY = "Eligible topic partition leaders are not available."
UNCLEAN_ELECTION = "unclean.leader.election.enable"


async def elect(cluster: Any, kind: int, *asked: tuple[str, list[int]], of_all: bool = False) -> list[Any]:
    """(topic, [(partition, code, text or None), …]) as answered."""
    request = admin_pb2.ElectLeadersRequest(election_type=kind)
    if not of_all:
        request.topic_partitions.SetInParent()
        for topic, partitions in asked:
            request.topic_partitions.values.add(topic=topic, partitions=partitions)
    response = await cluster.write(elect_leaders, request)
    return [
        (
            result.topic,
            [
                (entry.partition_id, entry.error_code, entry.error_message if entry.HasField("error_message") else None)
                for entry in result.partition_result
            ],
        )
        for result in response.replica_election_results
    ]


@pytest.fixture
async def foo(five: Any) -> Any:
    """Three partitions; 2 and 3 are fenced, then 1."""
    await five.create("foo", (1, 2, 3), (2, 3, 4), (0, 2, 1))
    for broker_id in (2, 3, 1):
        await five.stop_broker(broker_id)
    return five


class TestUncleanElections:
    async def test_only_partitions_without_leader_need_one(self, foo: Any) -> None:
        assert [foo.partition("foo", n).leader for n in range(3)] == [-1, 4, 0]
        assert await elect(foo, UNCLEAN, ("foo", [0, 1, 2])) == [
            ("foo", [(0, 83, NOBODY), (1, 84, NOT_NEEDED), (2, 84, NOT_NEEDED)])
        ]

    async def test_a_replica_that_comes_back_is_not_elected_by_itself_but_on_request(self, foo: Any) -> None:
        await foo.heartbeat(2)
        assert foo.partition("foo").leader == -1, "1 was the last in sync"
        assert await elect(foo, UNCLEAN, ("foo", [0, 1])) == [("foo", [(0, 0, None), (1, 84, NOT_NEEDED)])]
        assert foo.state("foo")[:3] == ((1, 2, 3), (2,), 2)
        assert (foo.partition("foo").leader_recovery_state, foo.partition("foo").elr) == (1, ())
        assert foo.partition("foo", 1).leader == 4

    async def test_a_permission_of_the_topic_is_not_needed(self, foo: Any) -> None:
        await foo.configure(RESOURCE_TOPIC, "foo", (UNCLEAN_ELECTION, SET, "false"))
        await foo.heartbeat(3)
        assert await elect(foo, UNCLEAN, ("foo", [0])) == [("foo", [(0, 0, None)])]


class TestPreferredElections:
    async def test_the_first_replica_leads_again_once_it_is_in_sync(self, five: Any) -> None:
        await five.create("t", (0, 1), (1, 0))
        await five.stop_broker(0)
        assert await elect(five, PREFERRED, ("t", [0, 1])) == [("t", [(0, 80, NO_PREFERRED), (1, 84, NOT_NEEDED)])]
        await five.heartbeat(0)
        assert await elect(five, PREFERRED, ("t", [0])) == [("t", [(0, 80, NO_PREFERRED)])]
        await five.set_isr("t", (1, 0))
        assert await elect(five, PREFERRED, ("t", [0, 1])) == [("t", [(0, 0, None), (1, 84, NOT_NEEDED)])]
        assert (five.partition("t").leader, five.partition("t").leader_epoch) == (0, 2)

    async def test_after_a_mere_change_of_order(self, five: Any) -> None:
        await five.create("t", (0, 1, 2))
        await five.reassign("t", (2, 1, 0))
        assert five.partition("t").leader == 0
        assert await elect(five, PREFERRED, ("t", [0])) == [("t", [(0, 0, None)])]
        assert (five.partition("t").leader, five.partition("t").leader_epoch) == (2, 1)

    async def test_a_shutting_down_or_fenced_broker_is_not_available(self, five: Any) -> None:
        await five.stop_broker(0)
        await five.create("foo", (1, 2, 3), (2, 3, 4), (0, 2, 1))
        await five.heartbeat(1, want_shutdown=True)
        request = ("foo", [0, 1, 2])
        assert await elect(five, PREFERRED, request, ("bar", [0])) == [
            ("foo", [(0, 80, NO_PREFERRED), (1, 84, NOT_NEEDED), (2, 80, NO_PREFERRED)]),
            ("bar", [(0, 3, "No such topic as bar")]),
        ]
        await five.register(1, 2)
        await five.heartbeat(1)
        await five.heartbeat(0)
        await five.set_isr("foo", (2, 3, 1), 0)
        await five.set_isr("foo", (2, 1, 0), 2)
        assert await elect(five, PREFERRED, request) == [("foo", [(0, 0, None), (1, 84, NOT_NEEDED), (2, 0, None)])]

    async def test_never_are_unclean(self, five: Any) -> None:
        await five.create("t", (0, 1))
        await five.stop_broker(0)
        await five.stop_broker(1)
        await five.heartbeat(0)
        assert await elect(five, PREFERRED, ("t", [0])) == [("t", [(0, 80, NO_PREFERRED)])]
        assert five.partition("t").leader == -1, "0 is alive and not in sync"


class TestAnswers:
    async def test_unknown_topics_and_partitions_are_named(self, five: Any) -> None:
        await five.create("t", (0,))
        assert await elect(five, PREFERRED, ("a b", [0]), ("t", [-1, 7])) == [
            ("a b", [(0, 3, "No such topic as a b")]),
            ("t", [(-1, 3, "No such partition as t--1"), (7, 3, "No such partition as t-7")]),
        ]

    async def test_a_partition_named_twice_is_answered_twice_and_changed_once(self, five: Any) -> None:
        await five.create("t", (0, 1))
        await five.reassign("t", (1, 0))
        assert await elect(five, PREFERRED, ("t", [0, 0]), ("t", [0])) == [
            ("t", [(0, 0, None), (0, 0, None)]),
            ("t", [(0, 0, None)]),
        ]
        assert (five.partition("t").leader, five.partition("t").leader_epoch) == (1, 1)

    async def test_all_partitions_leaves_out_those_that_need_no_election_and_keeps_their_topics(self, five: Any) -> None:
        await five.create("b", (0, 1), (2, 3))
        await five.create("a", (3, 2))
        await five.reassign("b", (1, 0))
        assert await elect(five, PREFERRED, of_all=True) == [("a", []), ("b", [(0, 0, None)])]

    async def test_an_empty_list_of_partitions_has_an_empty_answer(self, five: Any) -> None:
        assert await elect(five, PREFERRED) == []

    async def test_an_unknown_type_refuses_the_request(self, five: Any) -> None:
        with pytest.raises(ApiError) as caught:
            await elect(five, 7, ("t", [0]))
        assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, "Unknown election type 7")


class TestBalancing:
    @pytest.fixture
    async def imbalanced(self, five: Any) -> Any:
        """Brokers 0 and 1 were fenced and are back; only 0 is in sync again."""
        await five.create("t", (0, 2), (1, 2), (2, 3))
        for broker_id in (0, 1):
            await five.stop_broker(broker_id)
            await five.heartbeat(broker_id)
        await five.set_isr("t", (2, 0), 0)
        return five

    def leaders(self, cluster: Any) -> list[int]:
        return [cluster.partition("t", number).leader for number in range(3)]

    async def test_moves_leaders_back_to_preferred_replicas_that_are_in_sync(self, imbalanced: Any) -> None:
        assert self.leaders(imbalanced) == [2, 2, 2]
        await imbalanced.pass_time(299_000)
        assert self.leaders(imbalanced) == [2, 2, 2]
        for broker_id in range(5):
            await imbalanced.heartbeat(broker_id)
        await imbalanced.pass_time(2_000)
        assert self.leaders(imbalanced) == [0, 2, 2]
        assert len(imbalanced.controller.committed.index.led_by_others()) == 1
        await imbalanced.set_isr("t", (2, 1), 1)
        imbalanced.controller.heartbeats.extend_sessions(300_000, imbalanced.clock.now_ms + 300_000)
        await imbalanced.pass_time(300_000)
        assert self.leaders(imbalanced) == [0, 1, 2]
        assert imbalanced.controller.committed.index.led_by_others() == []

    async def test_goes_on_at_once_after_a_full_run(self, imbalanced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leader_elections, "MAX_ELECTIONS_PER_RUN", 1)
        await imbalanced.set_isr("t", (2, 1), 1)
        imbalanced.controller.heartbeats.extend_sessions(300_000, imbalanced.clock.now_ms + 300_000)
        await imbalanced.pass_time(300_000)
        assert self.leaders(imbalanced) == [0, 2, 2]
        await imbalanced.pass_time(10)
        assert self.leaders(imbalanced) == [0, 1, 2]

    async def test_can_be_switched_off(self, tools: Any) -> None:
        cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, max_idle_interval_ms=0, balance_interval_ms=0))
        await cluster.lead()
        await cluster.start_brokers(0, 1)
        await cluster.create("t", (0, 1))
        await cluster.reassign("t", (1, 0))
        cluster.controller.heartbeats.extend_sessions(900_000, cluster.clock.now_ms + 900_000)
        await cluster.pass_time(900_000)
        assert cluster.partition("t").leader == 0

    async def test_is_the_active_controllers_business(self, imbalanced: Any) -> None:
        await imbalanced.lose_leadership(survives=True)
        await imbalanced.pass_time(400_000)
        assert self.leaders(imbalanced) == [2, 2, 2]


class TestUncleanElectionsByItself:
    @pytest.fixture
    async def leaderless(self, five: Any) -> Any:
        """No broker of the in-sync set is alive; broker 1 is alive and not in sync."""
        await five.create("t", (0, 1))
        await five.stop_broker(1)
        await five.stop_broker(0)
        await five.heartbeat(1)
        assert five.partition("t").leader == -1
        return five

    @pytest.mark.parametrize(
        ("resource_type", "name"), [(RESOURCE_TOPIC, "t"), (RESOURCE_BROKER, "")], ids=["of the topic", "of the cluster"]
    )
    async def test_happen_when_the_configuration_allows_it(self, leaderless: Any, resource_type: int, name: str) -> None:
        await leaderless.configure(resource_type, name, (UNCLEAN_ELECTION, SET, "true"))
        await leaderless.pass_time(0)
        assert leaderless.state("t")[:3] == ((0, 1), (1,), 1)
        assert leaderless.partition("t").leader_recovery_state == 1

    async def test_do_not_happen_where_the_topic_forbids_what_the_cluster_allows(self, leaderless: Any) -> None:
        await leaderless.configure(RESOURCE_TOPIC, "t", (UNCLEAN_ELECTION, SET, "false"))
        await leaderless.configure(RESOURCE_BROKER, "", (UNCLEAN_ELECTION, SET, "true"))
        await leaderless.pass_time(0)
        assert leaderless.partition("t").leader == -1
        await leaderless.configure(RESOURCE_TOPIC, "t", (UNCLEAN_ELECTION, DELETE, None))
        await leaderless.pass_time(0)
        assert leaderless.partition("t").leader == 1

    @pytest.mark.parametrize(
        ("static", "of_cluster", "of_topic", "leader"),
        [
            (None, None, None, -1),
            ("true", None, None, 1),
            ("false", None, None, -1),
            ("false", "true", None, 1),
            ("true", "false", None, -1),
            ("true", "true", "false", -1),
            ("false", "false", "true", 1),
        ],
    )
    async def test_the_topic_decides_else_the_cluster_else_the_controllers_file(
        self, tools: Any, static: str | None, of_cluster: str | None, of_topic: str | None, leader: int
    ) -> None:
        file = {} if static is None else {UNCLEAN_ELECTION: static}
        cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, max_idle_interval_ms=0, static=file))
        await cluster.lead()
        await cluster.start_brokers(0, 1)
        await cluster.create("t", (0, 1))
        for resource_type, name, value in ((RESOURCE_BROKER, "", of_cluster), (RESOURCE_TOPIC, "t", of_topic)):
            if value is not None:
                await cluster.configure(resource_type, name, (UNCLEAN_ELECTION, SET, value))
        await cluster.stop_broker(1)
        await cluster.stop_broker(0)
        await cluster.heartbeat(1)
        assert cluster.partition("t").leader == leader


class TestBackgroundTasks:
    def test_run_at_their_intervals(self, tools: Any) -> None:
        settings = tools.Settings(tools.cluster_id, 3000, balance_interval_ms=7_000, unclean_election_interval_ms=9_000)
        tasks = {task.name: task.interval_ms for task in background_tasks(settings)}
        assert (tasks["balance leaders"], tasks["elect uncleanly"]) == (7_000, 9_000)

    def test_go_on_almost_at_once_if_there_is_more_and_try_again_soon_if_they_failed(self, tools: Any) -> None:
        task = background_tasks(tools.Settings(tools.cluster_id, 3000))[0]
        assert task.pause_ms(has_more=False, has_failed=False) == task.interval_ms == 300_000
        assert task.pause_ms(has_more=True, has_failed=False) == 10
        assert task.pause_ms(has_more=True, has_failed=True) == 60_000

"""Stories of moves. Each is also played with a failover between any two steps, and ends in the same metadata.

A story is a list of steps with the expected answers. Every story is played once undisturbed, and then once for each step and
each of these faults. A standby that has read the log, or a snapshot, takes over before the step. Or the step's outcome is
unknown: the leadership is lost before a commit, and the client repeats the request after its records survived or were lost.
The metadata at the end is always the same, partition epochs included.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError
from kraftlab.controller.cluster import brokers
from kraftlab.controller.configs import features
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.controller.partitions.leader_elections import elect_leaders
from kraftlab.controller.partitions.partitions import alter_partition
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.topics import topics
from kraftlab.controller.topics.partition_counts import create_partitions
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, IsrChange
from kraftlab.quorum.core.types import OffsetAndEpoch

Target = tuple[int, ...]
ORIGINAL, TARGET, OTHER = (0, 1, 2), (2, 3, 4), (1, 3, 4)
ELR = "eligible.leader.replicas.version"


class Step(NamedTuple):
    """`verb`: a method of Story. `code`: its answer. `again`: a permitted answer to its repetition."""

    verb: str
    arguments: tuple[Any, ...] = ()
    code: int = 0
    again: tuple[int, ...] = ()


def move(target: Target, code: int = 0, **how: Any) -> Step:
    return Step("move", (target, tuple(how.items())), code)


def cancel(code: int = 0, *, force: bool = False) -> Step:
    return Step("cancel", (force,), code, (85,))


def in_sync(*members: int) -> Step:
    return Step("in_sync", members)


def fence(broker_id: int) -> Step:
    return Step("fence", (broker_id,))


def unfence(broker_id: int) -> Step:
    return Step("unfence", (broker_id,))


def unregister(broker_id: int) -> Step:
    return Step("unregister", (broker_id,), 0, (102,))


CREATE = Step("create", (ORIGINAL,), 0, (36,))
DELETE = Step("delete", (), 0, (3,))
ADD_PARTITION = Step("add_partition", (2,), 0, (37,))
ALL = (0, 1, 2, 3, 4)

STORIES: dict[str, tuple[Step, ...]] = {
    "a move": (CREATE, move(TARGET), in_sync(0, 1, 2, 3), in_sync(0, 1, 2, 3, 4)),
    "replaced, then cancelled": (CREATE, move(TARGET), in_sync(0, 1, 2, 3), move(OTHER), move((4,)), cancel(), cancel(85)),
    "replaced by the original": (CREATE, move(TARGET), in_sync(0, 1, 2, 3), move(ORIGINAL), cancel(85)),
    "cancelled, then begun again": (CREATE, move(TARGET), cancel(), move(OTHER), in_sync(*ALL)),
    "named twice in a request": (CREATE, Step("move_twice", (), 42), move(TARGET), Step("move_twice", (), 42), cancel()),
    "a cancel that leaves no leader": (
        *(CREATE, move(TARGET), in_sync(0, 1, 2, 3), fence(0), fence(1), fence(2)),
        *(cancel(39), cancel(39, force=True), unfence(1), in_sync(0, 1, 2, 3), cancel()),
    ),
    "deleted while it moves": (CREATE, move(TARGET), in_sync(0, 1, 2, 3), DELETE, CREATE, move(OTHER)),
    "partitions are added while it moves": (CREATE, move(TARGET), in_sync(0, 1, 2, 3), ADD_PARTITION, in_sync(*ALL)),
    "a feature changes while it moves": (
        *(CREATE, Step("feature", (ELR, 0)), move(TARGET), in_sync(0, 1, 2, 3), Step("feature", (ELR, 1))),
        *(fence(3), unfence(3), in_sync(*ALL)),
    ),
    "the number of replicas may not change": (
        *(CREATE, move((3, 4), 38, allow_replication_factor_change=False)),
        *(move((2, 3, 4), allow_replication_factor_change=False), move((3, 4, 1), allow_replication_factor_change=False)),
        *(move((3, 4), 38, allow_replication_factor_change=False), in_sync(*ALL)),
    ),
    "queued moves": (CREATE, move(TARGET, queued=True, plan_id="p"), in_sync(0, 1, 2, 3), cancel(), move(OTHER, queued=True)),
    "a throttled move": (CREATE, move(TARGET, throttle=1000), in_sync(0, 1, 2, 3), in_sync(*ALL)),
    "a plan is rolled back": (CREATE, move(TARGET, plan_id="p"), in_sync(*ALL), Step("roll_back", ("p",)), in_sync(*ALL)),
    "all is cancelled": (CREATE, move(TARGET), in_sync(0, 1, 2, 3), Step("cancel_all"), move(OTHER)),
    "the preferred leader is elected": (
        CREATE,
        fence(0),
        unfence(0),
        in_sync(0, 1, 2),
        Step("elect", (), 0, (84,)),
        move(TARGET),
    ),
    "another target, without the adder that is unregistered": (
        *(CREATE, move(TARGET), in_sync(0, 1, 2, 3), fence(4), unregister(4), move((2, 3, 0))),
    ),
    "another target, without the adder whose directory fails": (
        *(CREATE, move(TARGET), in_sync(0, 1, 2, 3), Step("fail_directory", (4,)), move((2, 3, 0))),
    ),
}

FAULTS: dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]] = {
    "the leader is fenced": ((fence(0),), (unfence(0),)),
    "an adder is fenced": ((fence(3),), (unfence(3),)),
    "a target is unregistered": ((fence(4), unregister(4)), (Step("register", (4,)),)),
    "the directory of an adder fails": ((Step("fail_directory", (4,)),), (Step("register", (4,)),)),
}
"""Fault → its repair."""

MOVING = STORIES["a move"]
for _name, (_fault, _cure) in FAULTS.items():
    for _at in range(1, len(MOVING)):
        STORIES[f"{_name} before step {_at}, for a while"] = (*MOVING[:_at], *_fault, *_cure, *MOVING[_at:], in_sync(*ALL))
        STORIES[f"{_name} before step {_at}, then cancelled"] = (*MOVING[:_at], *_fault, cancel(85 if _at == 1 else 0))


class Story:
    """Plays steps on a cluster."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.trouble: str | None = None
        """Fate of the next request's outcome: "written", "lost", or None if it is known."""

    async def take_over(self, by: str) -> None:
        """Another controller becomes active, which knows only the log or a snapshot."""
        cluster, old = self.cluster, self.cluster.controller
        if old.is_active:
            await cluster.lose_leadership(survives=True)
        made = QuorumController(cluster.settings, cluster.clock, random.Random(11), lambda: None)
        made.attach(cluster.quorum)
        batches = cluster.quorum.batches[: cluster.quorum.committed_batches]
        if by == "log":
            for batch in batches:
                await made.apply([batch], batches[-1].end_offset)
        else:
            snapshot = made.read_snapshot(body for body, _ in old.freeze().batches())
            last = batches[-1]
            await made.load_snapshot(OffsetAndEpoch(last.end_offset, last.epoch), last.append_time_ms, snapshot)
        assert made.committed.image == old.committed.image, "a standby knows what the active one knew"
        assert made.committed.index == old.committed.index
        cluster.controller = made
        await cluster.lead()

    async def ask(self, operation: Callable[..., Any], request: Any) -> Any:
        """The response, or the code of a refusal. The request is repeated if its outcome is unknown."""
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            answer = self.cluster.controller.write("test", lambda state, context: operation(state, request, context))
            await self.cluster.lose_leadership(survives=trouble == "written")
            assert answer.done
            await self.take_over("log")
        try:
            return await self.cluster.write(operation, request)
        except ApiError as error:
            return int(error.code)

    async def play(self, step: Step) -> None:
        is_asked_again = self.trouble is not None
        code = await getattr(self, f"do_{step.verb}")(*step.arguments)
        expected = (step.code, *step.again) if is_asked_again else (step.code,)
        assert code in expected, f"{step} is answered {code}"

    def metadata(self) -> dict[str, Any]:
        """The metadata without log positions."""
        image = self.cluster.controller.committed.image
        names = {topic_id: topic.name for topic_id, topic in image.topics.by_id.items()}
        return {
            "partitions": {(t.name, n): p for t in image.topics.by_id.values() for n, p in t.partitions.items()},
            "listed": {names[topic_id]: numbers for topic_id, numbers in image.topics.reassigning.items()},
            "brokers": {
                n: (broker.fenced, broker.in_controlled_shutdown, broker.log_dirs) for n, broker in image.cluster.brokers.items()
            },
            "running": {
                (names[i], n): (each.plan_id, each.initiator, each.throttle)
                for i, moves in image.moves.running.items()
                for n, each in moves.items()
            },
            "queued": {(names[i], n): each.target for i, moves in image.moves.queued.items() for n, each in moves.items()},
            "plans": {
                plan_id: sorted((names.get(i), n, was.replicas, was.target) for (i, n), was in plan.partitions.items())
                for plan_id, plan in image.moves.plans.items()
            },
            "configs": dict(image.configs),
            "features": dict(image.features),
        }

    # --- verbs ---

    @property
    def partition(self) -> Any:
        return self.cluster.partition("t")

    async def alter(self, request: Any, call: Any = reassignments.alter) -> int:
        response = await self.ask(call, request)
        if isinstance(response, int):
            return response
        codes = {entry.error_code for topic in response.responses for entry in topic.partitions}
        assert len(codes) <= 1
        return codes.pop() if codes else response.header.error_code

    async def do_create(self, replicas: Target) -> int:
        request = pb.CreateTopicsRequest()
        topic = request.topics.add(name="t", num_partitions=-1, replication_factor=-1)
        topic.assignments.add(partition_index=0, broker_ids=replicas)
        return (await self.ask(topics.create, request)).topics[0].error_code  # type: ignore[no-any-return]

    async def do_delete(self) -> int:
        request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name="t")])
        return (await self.ask(topics.delete, request)).responses[0].error_code  # type: ignore[no-any-return]

    async def do_add_partition(self, count: int) -> int:
        request = pb.CreatePartitionsRequest()
        topic = request.topics.add(name="t", count=count)
        topic.assignments.SetInParent()
        topic.assignments.values.add(broker_ids=(0, 1, 2))
        return (await self.ask(create_partitions, request)).results[0].error_code  # type: ignore[no-any-return]

    async def do_move(self, target: Target, how: tuple[tuple[str, Any], ...]) -> int:
        request = pb.AlterPartitionReassignmentsRequest(**dict(how))
        request.topics.add(name="t").partitions.add(partition_index=0).replicas.values.extend(target)
        return await self.alter(request)

    async def do_move_twice(self) -> int:
        request = pb.AlterPartitionReassignmentsRequest()
        topic = request.topics.add(name="t")
        for target in (TARGET, OTHER):
            topic.partitions.add(partition_index=0).replicas.values.extend(target)
        return await self.alter(request)

    async def do_cancel(self, force: bool) -> int:
        request = pb.AlterPartitionReassignmentsRequest(force=force)
        request.topics.add(name="t").partitions.add(partition_index=0)
        return await self.alter(request)

    async def do_cancel_all(self) -> int:
        return await self.alter(pb.CancelReassignmentsRequest(), reassignments.cancel)

    async def do_roll_back(self, plan_id: str) -> int:
        return await self.alter(pb.RollbackPlanRequest(rollback_plan_id=plan_id), reassignments.roll_back)

    async def do_in_sync(self, *wanted: int) -> int:
        """The leader requests all replicas in sync that can be. If the completion moves the leadership, the answer has its own
        code.
        """
        if self.trouble is not None:
            self.trouble, trouble = None, self.trouble
            await self.change_isr(wanted, trouble)
        return await self.change_isr(wanted, None)

    async def change_isr(self, wanted: tuple[int, ...], trouble: str | None) -> int:
        now, registered = self.partition, self.cluster.controller.newest.image.cluster.brokers
        members = [n for n in now.replicas if n in wanted and n in registered and registered[n].is_active]
        if now.leader < 0 or now.leader not in members or set(members) == set(now.isr):
            return 0
        topic = self.cluster.controller.newest.image.topics.get("t")
        isr = tuple((n, registered[n].epoch) for n in members)
        change = IsrChange(topic.topic_id, 0, now.leader_epoch, isr, now.leader_recovery_state, now.partition_epoch)
        request = AlterPartitionRequest(now.leader, registered[now.leader].epoch, (change,))
        self.trouble = trouble
        results = (await self.ask(alter_partition, request)).results
        return 0 if trouble is not None or results[0].error == 108 else results[0].error  # type: ignore[no-any-return]

    async def do_elect(self) -> int:
        request = pb.ElectLeadersRequest(election_type=0)
        request.topic_partitions.values.add(topic="t", partitions=[0])
        response = await self.ask(elect_leaders, request)
        return response.replica_election_results[0].partition_result[0].error_code  # type: ignore[no-any-return]

    async def do_feature(self, name: str, level: int) -> int:
        request = pb.UpdateFeaturesRequest()
        request.feature_updates.add(feature=name, max_version_level=level, upgrade_type=1 if level else 2)
        response = await self.ask(features.update, request)
        return response if isinstance(response, int) else response.header.error_code  # type: ignore[no-any-return]

    async def do_unregister(self, broker_id: int) -> int:
        response = await self.ask(brokers.unregister, pb.UnregisterBrokerRequest(broker_id=broker_id))
        return response if isinstance(response, int) else 0

    async def do_fence(self, broker_id: int) -> int:
        await self.before_a_heartbeat()
        await self.cluster.stop_broker(broker_id)
        return 0

    async def do_unfence(self, broker_id: int) -> int:
        await self.before_a_heartbeat()
        return int((await self.cluster.heartbeat(broker_id)).is_fenced)

    async def do_fail_directory(self, broker_id: int) -> int:
        await self.before_a_heartbeat()
        await self.cluster.heartbeat(broker_id, offline_log_dirs=self.cluster.broker(broker_id).log_dirs)
        return 0

    async def do_register(self, broker_id: int) -> int:
        """Register a new process with a new disk."""
        await self.before_a_heartbeat()
        await self.cluster.register(broker_id, 2)
        return int((await self.cluster.heartbeat(broker_id)).is_fenced)

    async def before_a_heartbeat(self) -> None:
        """Brokers repeat their requests anyway."""
        if self.trouble is not None:
            self.trouble = None
            await self.take_over("log")


async def metadata_at_the_end(tools: Any, steps: tuple[Step, ...], trouble: str | None, at: int) -> dict[str, Any]:
    cluster = tools.Cluster()
    await cluster.lead()
    await cluster.start_brokers(0, 1, 2, 3, 4)
    story = Story(cluster)
    for index, step in enumerate(steps):
        if index == at and trouble in ("log", "snapshot"):
            await story.take_over(trouble)
        story.trouble = trouble if index == at and trouble in ("written", "lost") else None
        await story.play(step)
    await cluster.pass_time(1)
    cluster.check_images()
    return story.metadata()


@cache
def undisturbed(tools: Any, name: str) -> dict[str, Any]:
    return trio.run(metadata_at_the_end, tools, STORIES[name], None, -1)


@pytest.mark.parametrize("trouble", ["log", "snapshot", "written", "lost"])
@pytest.mark.parametrize("name", STORIES)
def test_a_failover_before_any_step_changes_nothing_of_the_end(tools: Any, name: str, trouble: str) -> None:
    for at in range(len(STORIES[name])):
        ended = trio.run(metadata_at_the_end, tools, STORIES[name], trouble, at)
        for part, expected in undisturbed(tools, name).items():
            assert ended[part] == expected, f"{part}, with the trouble at step {at}: {STORIES[name][at]}"


def test_stories_end_where_they_should(tools: Any) -> None:
    def replicas(name: str) -> tuple[Target, bool]:
        partition = undisturbed(tools, name)["partitions"]["t", 0]
        return partition.replicas, partition.is_reassigning

    assert replicas("a move") == (TARGET, False)
    assert replicas("replaced, then cancelled") == (ORIGINAL, False)
    assert replicas("replaced by the original") == (ORIGINAL, False)
    assert replicas("named twice in a request") == (ORIGINAL, False)
    assert replicas("a cancel that leaves no leader") == (ORIGINAL, False)
    assert replicas("a plan is rolled back") == (ORIGINAL, False)
    assert replicas("partitions are added while it moves") == (TARGET, False)
    assert replicas("the number of replicas may not change") == ((3, 4, 1), False)
    assert all(replicas(name) == (TARGET, False) for name in STORIES if name.endswith("for a while"))
    assert all(replicas(name) == (ORIGINAL, False) for name in STORIES if name.endswith("then cancelled"))
    assert all(replicas(name) == ((2, 3, 0), False) for name in STORIES if name.startswith("another target"))


@pytest.mark.parametrize("by", ["log", "snapshot"])
async def test_silent_brokers_are_fenced_after_a_failover_without_heartbeats(five: Any, by: str) -> None:
    await five.create("t", ORIGINAL)
    await Story(five).take_over(by)
    await five.pass_time(five.settings.session_timeout_ms + 1)
    for _ in range(10):
        await five.pass_time(100)
    assert all(broker.fenced for broker in five.controller.committed.image.cluster.brokers.values())
    state = five.partition("t")
    assert (state.leader, len(state.isr) + len(state.elr)) == (-1, 1), "the last in-sync replica is remembered"

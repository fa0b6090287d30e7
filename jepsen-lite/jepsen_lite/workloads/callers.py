"""Requests of the clients of all workloads: their ids, the nodes that they go to, and the meaning of error codes.

Every write has a request id of its own, so that its effect can be found in the log. A client's id comes from the random generator
of its process, and its sequences count. A *linearizable* read reflects everything that was acknowledged before it. A *local* read
can be sent to any node, and must only not be older than this client's previous results (`newest`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode

from ..generators import Invocation, Source, delay, repeat, time_limit, until_ok
from ..history import OK
from ..outcomes import error_name, of_error_code
from ..workload import CallFailed, Completion, Options, Port, Reply

RESOURCE_TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = range(4)
NODE_OF_CHOICE_RATE = 0.3
"""Share of the requests that go to a random node instead of one that is likely to answer."""
SETUP_TIMEOUT_S = 60.0
CREATED_AT_ONCE = 10
"""Topics per request: so many fit the smallest logs of a simulated cluster."""
_SETUP_PAUSE_S = 0.2
_FINAL_PAUSE_S = 0.1
_FINAL_S = 30.0
_TOPICS_MAX = 200
_UNLIMITED_RATE = 500.0
"""Expected operations per second if no rate is given."""


class SetupFailed(Exception):
    """The cluster cannot be prepared for a workload; the text has its last error."""


class WriteOutcome(NamedTuple):
    """A write's answer, and its request id in the log."""

    reply: Reply
    request_id: str


class SeenBrokers(NamedTuple):
    """The registered brokers, fenced ones included: `epochs` by id, and the ids of the `fenced`."""

    reply: Reply
    epochs: dict[int, int]
    fenced: tuple[int, ...]


class Caller:
    """One process of one workload, as the cluster sees it."""

    def __init__(self, options: Options, process: int, role: str = "client") -> None:
        self.options = options
        self.random = options.random(f"{role}/{process}")
        self.client_id = self.random.randbytes(16)
        self.sequence = 0
        self.newest = 0
        """The newest metadata offset that an answer reflected."""

    async def write(
        self, port: Port, api: str, request: object, *, anywhere: bool = True, node: int | None = None
    ) -> WriteOutcome:
        """Send a write once, under a new request id. `anywhere`: possibly to a broker. CallFailed."""
        self.sequence += 1
        return await self.send_as(
            port, api, request, self.sequence, node=self._target(port) if node is None and anywhere else node
        )

    async def send_as(
        self, port: Port, api: str, request: Any, sequence: int, *, node: int | None = None, timeout_ms: int | None = None
    ) -> WriteOutcome:
        """Send a write once under that sequence; 0: without an id."""
        timeout_ms = self.options.timeout_ms if timeout_ms is None else timeout_ms
        header = request.header
        if sequence:
            header.request_id.client_id = self.client_id
            header.request_id.sequence = sequence
        header.timeout_ms = timeout_ms
        reply = await port.call(api, request, node=node, timeout_ms=timeout_ms)
        self.newest = max(self.newest, reply.offset)
        return WriteOutcome(reply, f"{self.client_id.hex()}:{sequence}" if sequence else "")

    async def read(self, port: Port, api: str, request: Any, *, local: bool = False, node: int | None = None) -> Reply:
        """Send a read once: linearizable, or with `local` to any node, with a minimum offset of `newest`."""
        header = request.header
        header.timeout_ms = self.options.timeout_ms
        if local:
            header.min_offset = self.newest
            node = self.random.choice(nodes(port)) if node is None else node
        else:
            header.read_mode = pb.READ_MODE_LINEARIZABLE
            node = self._target(port) if node is None else node
        reply = await port.call(api, request, node=node, timeout_ms=self.options.timeout_ms)
        self.newest = max(self.newest, reply.offset)
        return reply

    def _target(self, port: Port) -> int | None:
        """Return a random broker now and then, since brokers forward requests; otherwise None."""
        if port.brokers and self.random.random() < NODE_OF_CHOICE_RATE:
            return self.random.choice(port.brokers)
        return None

    async def see_brokers(self, port: Port, *, local: bool = False) -> SeenBrokers:
        """Read the registered brokers: requests about a broker contain its epoch. CallFailed."""
        request = pb.DescribeClusterRequest(include_fenced_brokers=True)
        reply = await self.read(port, "DescribeCluster", request, local=local)
        brokers = reply.response.brokers
        epochs = {broker.broker_id: broker.broker_epoch for broker in brokers}
        return SeenBrokers(reply, epochs, tuple(sorted(broker.broker_id for broker in brokers if broker.is_fenced)))

    async def change_configs(
        self, port: Port, changes: Mapping[str, Mapping[str, str]], operation: int
    ) -> tuple[WriteOutcome, list[int]]:
        """Change configs of topics, {topic: {config: value}}, in one request; return the error code of each topic."""
        resources = [
            pb.AlterConfigsResource(
                resource_type=RESOURCE_TOPIC,
                resource_name=topic,
                configs=[
                    pb.AlterableConfig(name=name, config_operation=operation, value=value) for name, value in values.items()
                ],
            )
            for topic, values in changes.items()
        ]
        sent = await self.write(port, "IncrementalAlterConfigs", pb.IncrementalAlterConfigsRequest(resources=resources))
        return sent, [answer.error_code for answer in sent.reply.response.responses]

    async def read_configs(
        self, port: Port, names: Mapping[str, Sequence[str]], *, local: bool = False
    ) -> tuple[Reply, dict[str, dict[str, str]], int]:
        """Read configs of topics, {topic: names}, in one request; return those that the topics set, and the first error code."""
        resources = [
            pb.DescribeConfigsResource(
                resource_type=RESOURCE_TOPIC, resource_name=topic, configuration_keys=pb.ConfigurationKeys(values=wanted)
            )
            for topic, wanted in names.items()
        ]
        reply = await self.read(port, "DescribeConfigs", pb.DescribeConfigsRequest(resources=resources), local=local)
        results = reply.response.results
        found = {
            result.resource_name: {
                entry.name: entry.value
                for entry in result.configs
                if entry.config_source == pb.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
            }
            for result in results
        }
        return reply, found, next((result.error_code for result in results if result.error_code), 0)


def nodes(port: Port) -> Sequence[int]:
    """Return all nodes."""
    return [*port.controllers, *port.brokers]


def ended(reply: Reply, result: object = None, *, code: int = 0, request_id: str = "") -> Completion:
    """Return the end of an invocation by the error code of its entry in the answer."""
    if not code:
        return Completion(OK, result, "", reply.node, reply.offset, reply.epoch, request_id)
    outcome = of_error_code(code, outcome_unknown=False)
    return Completion(outcome, None, error_name(code), reply.node, reply.offset, reply.epoch, request_id)


def length_of(options: Options, key: str) -> int:
    """Return the number of operations of a key: about as many as the options say, so that keys end at different times."""
    return max(1, int(options.ops_per_key * options.random(f"length/{key}").uniform(0.8, 1.2)))


def repeated_until_ok(*invocations: Invocation) -> Source:
    """Repeat each invocation until it succeeds, one after the other, for the final phase: the cluster may still be electing a
    leader. All are abandoned together after half a minute.
    """
    return time_limit(_FINAL_S, [until_ok(delay(_FINAL_PAUSE_S, repeat(each))) for each in invocations])


def keys_wanted(options: Options) -> int:
    """Return the number of keys that a run uses, if each gets as many operations as the options say."""
    return math.ceil((options.rate or _UNLIMITED_RATE) * options.time_s / max(1, options.ops_per_key)) + options.concurrency


def in_turn(keys: Sequence[str]) -> Callable[[int], str]:
    """Return a function that gives all keys in turn and starts again after the last one."""
    return lambda number: keys[number % len(keys)]


def topics_wanted(options: Options, keys_per_topic: float) -> int:
    """Return the number of topics for so many keys, up to a limit."""
    return max(2, min(_TOPICS_MAX, math.ceil(keys_wanted(options) / keys_per_topic)))


# -- setting up -----------------------------------------------------------------------------------------------------------


async def create_topics(options: Options, port: Port, topics: Iterable[pb.CreatableTopic]) -> None:
    """Create topics before a run; retry until the cluster is able to. SetupFailed."""
    placed_on(port, 1)
    caller = Caller(options, 0, "setup")
    deadline_ns = port.now_ns() + int(SETUP_TIMEOUT_S * 1e9)
    missing = {topic.name: topic for topic in topics}
    fault = ""
    while missing:
        before = len(missing)
        try:
            some = tuple(islice(missing.values(), CREATED_AT_ONCE))
            sent = await caller.write(port, "CreateTopics", pb.CreateTopicsRequest(topics=some), anywhere=False)
        except CallFailed as failed:
            fault = failed.error
        else:
            for answer in sent.reply.response.topics:
                if answer.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                    missing.pop(answer.name, None)
                else:
                    fault = f"{answer.name}: {error_name(answer.error_code)} {answer.error_message}"
        if len(missing) == before:
            if port.now_ns() > deadline_ns:
                raise SetupFailed(
                    f"{len(missing)} topics could not be created within {SETUP_TIMEOUT_S:g} s ({fault}); check the logs of the "
                    "controllers, and whether all brokers run"
                )
            await port.sleep(_SETUP_PAUSE_S)


async def create_single_topics(options: Options, port: Port, names: Iterable[str]) -> None:
    """Create topics of one partition with one replica. SetupFailed."""
    await create_topics(options, port, (topic_on(name, placed_on(port, 1)) for name in names))


async def need_brokers(options: Options, port: Port) -> None:
    """Check that there is a broker: the set-up of a workload that needs nothing else. SetupFailed."""
    placed_on(port, 1)


def placed_on(port: Port, factor: int) -> list[int]:
    """Return the first `factor` brokers by id. SetupFailed if there are none."""
    if not port.brokers:
        raise SetupFailed("this workload needs a broker; give at least --brokers 1")
    return sorted(port.brokers)[:factor]


def topic_on(name: str, replicas: Sequence[int]) -> pb.CreatableTopic:
    """Return a topic of one partition with exactly these replicas."""
    assignment = pb.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    return pb.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])

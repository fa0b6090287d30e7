"""Any request to a controller's API gets a code from the table with a helpful text; there is no fault, and the image stays
sound.

Requests are made from the descriptors of the Admin service and from the structs of peer requests, so new fields are covered. A
field gets an existing value, one that exists elsewhere, a stale, empty, negative or huge one, or nonsense. Some entries come
twice. Between requests brokers come and go and the leadership is lost.
"""

from __future__ import annotations

import logging
import random
import struct
import types
import typing
from collections import Counter
from functools import cache
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kraftlab.access.authorizer import AccessSettings
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import LOST, MIGRATING, UNASSIGNED, to_text
from kraftlab.config.access import AUTHORIZER
from kraftlab.config.topic_configs import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from kraftlab.gateway.client_codec import decode_response, encode_request
from kraftlab.gateway.translation import to_value
from kraftlab.messages.catalog import request_class, response_class
from kraftlab.messages.writing import Unwritable
from kraftlab.metadata import peer_rpc
from kraftlab.metadata.features import SUPPORTED, supported_features
from kraftlab.metadata.index import index_of
from kraftlab.metadata.peer_rpc import Api
from kraftlab.metadata.peer_senders import PEER_SENDERS
from kraftlab.metadata.records import Listener
from kraftlab.metadata.snapshot import ImageSnapshot, image_digest, image_from
from kraftlab.rpc.calls import CALLS, NODE, OFFERS, QUORUM
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call
from kraftlab.wire.senders import named_node

SEEDS = 40
REQUESTS = 50
CALLERS = (*["User:ANONYMOUS"] * 4, "User:alice", "")
NAMES = (
    "t",
    "u",
    "new",
    "a.b",
    "a_b",
    "",
    ".",
    "..",
    "nope",
    "t" * 249,
    "t" * 250,
    "__cluster_metadata",
    "a b",
    "\x00",
    "é",
    "-1",
)
TEXTS = (
    "",
    "p",
    "q",
    "x" * 250,
    "0",
    "-1",
    "99",
    "*",
    "User:alice",
    "User:*",
    "alice",
    "127.0.0.1",
    "true",
    "1e400",
    "nan",
    "\x00",
    "𝔘",
)
KEYS = sorted({*TOPIC_KEYS, *BROKER_KEYS, *GROUP_KEYS, *CLIENT_METRICS_KEYS, "producer_byte_rate", "controller_mutation_rate"})
KINDS = ("user", "client-id", "ip", "cluster", "")
ACL_NUMBERS = ("resource_type_filter", "pattern_type_filter", "resource_pattern_type", "operation", "permission_type")
SMALL = (0, 0, 1, 1, 2, 2, 3, 4, 5, -1, 6)
OPTIONS_FROM = 10
"""Fields of requests about moves from this number on are options; many of them exclude each other."""
POWERS = (15, 16, 24, 31, 32, 63)
PEER_APIS: dict[int, tuple[type[Any], type[Any]]] = {
    Api.ALTER_PARTITION: (peer_rpc.AlterPartitionRequest, peer_rpc.AlterPartitionResponse),
    Api.BROKER_REGISTRATION: (peer_rpc.BrokerRegistrationRequest, peer_rpc.BrokerRegistrationResponse),
    Api.BROKER_HEARTBEAT: (peer_rpc.BrokerHeartbeatRequest, peer_rpc.BrokerHeartbeatResponse),
    Api.MOVE_PROGRESS: (peer_rpc.MoveProgressRequest, peer_rpc.MoveProgressResponse),
    Api.CONTROLLER_REGISTRATION: (peer_rpc.ControllerRegistrationRequest, peer_rpc.ControllerRegistrationResponse),
    Api.ASSIGN_REPLICAS_TO_DIRS: (peer_rpc.AssignReplicasToDirsRequest, peer_rpc.AssignReplicasToDirsResponse),
    Api.ALLOCATE_PRODUCER_IDS: (peer_rpc.AllocateProducerIdsRequest, peer_rpc.AllocateProducerIdsResponse),
    Api.ENVELOPE: (peer_rpc.EnvelopeRequest, peer_rpc.EnvelopeResponse),
}
MOVE_CALLS = (
    *["AlterPartitionReassignments"] * 5,
    *("AlterReplicationFactors", "AlterPartitionCounts", "AlterInterBrokerThrottle", "ListPartitionReassignments"),
    *("CancelReassignments", "RollbackPlan", "ForgetPlans"),
)
INTEGER_BITS = {FieldDescriptor.TYPE_INT32: 31, FieldDescriptor.TYPE_INT64: 63, FieldDescriptor.TYPE_UINT64: 64}


class Maker:
    """Makes requests. The name of a field decides on its valid values."""

    def __init__(self, cluster: Any, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    # --- values ---

    @property
    def image(self) -> Any:
        return self.cluster.controller.newest.image

    def topic_id(self) -> bytes:
        known = sorted(self.image.topics.by_id)
        return self.random.choice([*known * 3, bytes(16), b"\xff" * 16, b"", b"x" * 15])

    def directory(self) -> bytes:
        known = sorted(each for broker in self.image.cluster.brokers.values() for each in broker.log_dirs)
        return self.random.choice([*known * 2, UNASSIGNED, LOST, MIGRATING, b"n" * 16, b"", b"n" * 40])

    def broker_epoch(self) -> int:
        known = [broker.epoch for _, broker in sorted(self.image.cluster.brokers.items())]
        return self.random.choice([*known * 3, -1, 0, max(known) + 1000, 1 << 62])

    def integer(self, name: str, bits: int) -> int:
        highest = (1 << bits) - 1
        lowest = 0 if bits == 64 else -highest - 1
        if name.endswith("broker_epoch"):
            return self.broker_epoch()
        if name == "timeout_ms":
            return self.random.choice((60_000, 60_000, 60_000, 1, 0, -1, highest))
        if name == "api_version" and self.maybe(0.8):
            return self.random.randrange(4)
        if name == "min_offset" and self.maybe(0.9):
            return 0
        if name in ACL_NUMBERS and self.maybe(0.85):
            return self.random.choice((1, 2, 3))
        if name in ("resource_type", "resource_types") and self.maybe(0.7):
            return self.random.choice((2, 4, 16, 32))
        if self.maybe(0.92):
            return max(lowest, self.random.choice(SMALL))
        power = self.random.choice(POWERS)
        value = self.random.choice((1, -1)) * ((1 << power) + self.random.choice((-1, 0, 1)))
        return self.random.choice((lowest, highest, 2, 4, 8, 16, 32, min(highest, max(lowest, value))))

    def text(self, name: str) -> str:
        random = self.random
        if name == "cluster_id":
            return random.choice((*[self.cluster.settings.cluster_id] * 9, "another"))
        if name.endswith("plan_id") and self.image.moves.plans:
            return random.choice(sorted(self.image.moves.plans))
        if name.endswith("_id") and self.maybe(0.7):
            return to_text(random.choice((self.topic_id(), bytes(16))))
        if "entity_type" in name:
            return random.choice(KINDS)
        if name == "feature":
            return random.choice((*sorted(SUPPORTED), *TEXTS))
        if self.maybe(0.3):
            return random.choice(KEYS)
        return random.choice(NAMES + TEXTS) if self.maybe(0.4) else random.choice(("t", "u", "0", "1", ""))

    # --- messages of the Admin service ---

    def admin(self, api: str) -> Any:
        request = METHODS[api].request()
        self.fill(request, 0)
        for field, _ in request.ListFields():
            if field.number >= OPTIONS_FROM and self.maybe(0.85):
                request.ClearField(field.name)
        return request

    def fill(self, message: Any, depth: int, given: float = 0.75) -> None:
        descriptor: Descriptor = message.DESCRIPTOR
        for field in descriptor.fields:
            is_optional = field.has_presence and field.message_type is None
            if field.name == "header" and depth == 0:
                if self.maybe(0.5):
                    self.fill(message.header, 1, 0.3)
            elif field.is_repeated:
                self.fill_list(message, field, depth)
            elif field.name not in ACL_NUMBERS and not self.maybe(given / 3 if is_optional else given):
                continue
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                self.fill(getattr(message, field.name), depth + 1)
            else:
                setattr(message, field.name, self.scalar(field))
        known = sorted(self.image.cluster.brokers.items())
        if "broker_epoch" in descriptor.fields_by_name and known and self.maybe(0.6):
            message.broker_id, broker = self.random.choice(known)
            message.broker_epoch = broker.epoch

    def fill_list(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        entries = getattr(message, field.name)
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            if field.message_type is None:
                entries.append(self.scalar(field))
            else:
                self.fill(entries.add(), depth + 1)
        if len(entries) and self.maybe(0.15):
            entries.extend([entries[0]])

    def scalar(self, field: FieldDescriptor) -> Any:
        if field.type == FieldDescriptor.TYPE_STRING:
            return self.text(field.name)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.maybe(0.3)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.choice((b"", b"i" * 16, b"i" * 16, b"j" * 16, self.random.randbytes(20), b"x" * 5000))
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            return self.random.choice((0.0, 1.0, 1e6, -1.0, 0.5, float("nan"), float("inf"), 1e308))
        if field.type == FieldDescriptor.TYPE_ENUM:
            return self.random.choice((0, 0, 0, 1, 2, 99))
        return self.integer(field.name, INTEGER_BITS[field.type])

    # --- requests of peers ---

    def peer(self, api: int) -> bytes:
        """A body: one that decodes, one with a field of a wrong type, or random bytes."""
        if api == Api.ENVELOPE:
            return msgspec.msgpack.encode(self.envelope())
        value = self.struct(PEER_APIS[api][0])
        if self.maybe(0.05):
            return self.random.randbytes(self.random.randrange(30))
        if self.maybe(0.05):
            fields = list(msgspec.to_builtins(value, builtin_types=(bytes,)))
            fields[self.random.randrange(len(fields))] = self.random.choice((None, "x", -1, [], {}, 1.5, [[[]]]))
            return msgspec.msgpack.encode(fields[: self.random.randint(1, len(fields))])
        return msgspec.msgpack.encode(value)

    def envelope(self) -> peer_rpc.EnvelopeRequest:
        api = self.random.choice((*sorted(METHODS), "Nothing", ""))
        body = self.admin(api).SerializeToString() if api in METHODS and self.maybe(0.9) else self.random.randbytes(9)
        broker = self.random.choice((None, peer_rpc.ForwardingBroker(self.random.choice(SMALL), {"log.dirs": "/a"})))
        if api in OFFERS and self.maybe(0.4):
            frame, timeout_ms = self.frame(api), self.random.choice((None, -1, 0, 1, 2**40))
            return peer_rpc.EnvelopeRequest(api, self.random.choice(CALLERS), frame, "", broker, "h", True, timeout_ms)
        return peer_rpc.EnvelopeRequest(api, self.random.choice(CALLERS), body, self.random.choice(TEXTS), broker, "h")

    def frame(self, api: str) -> bytes:
        """A client's frame, whole or damaged, in any version."""
        offer = OFFERS[api]
        version = self.random.randint(offer.lowest, offer.highest)
        try:
            body: Any = to_value(self.admin(api), request_class(offer.key), version)
            frame = bytearray(encode_request(self.random.choice(SMALL), "client", body, version)[4:])
        except (Unwritable, ValueError):  # a number or an id that no frame can hold
            return self.random.randbytes(40)
        if self.maybe(0.2):
            frame[self.random.randrange(len(frame))] = self.random.randrange(256)
        return bytes(frame)

    def struct(self, kind: type[Any]) -> Any:
        hints = typing.get_type_hints(kind)
        fields = {name: self.value(name, hints[name]) for name in kind.__struct_fields__}
        known = sorted(self.image.cluster.brokers)
        if "broker_id" in fields and known and self.maybe(0.8):
            fields["broker_id"] = self.random.choice(known)
            if "broker_epoch" in fields:
                fields["broker_epoch"] = self.image.cluster.brokers[fields["broker_id"]].epoch
            if "incarnation_id" in fields and self.maybe(0.7):
                registered = self.image.cluster.brokers[fields["broker_id"]]
                fields |= {"incarnation_id": registered.incarnation_id, "log_dirs": registered.log_dirs}
        if "features" in fields and self.maybe(0.8):
            fields["features"] = supported_features()
        if "listeners" in fields and self.maybe(0.8):
            fields["listeners"] = (Listener("PEER", "h", 1), Listener("GRPC", "h", 2), Listener("CONTROLLER", "h", 3))
        return kind(**fields)

    def value(self, name: str, kind: Any) -> Any:
        origin = typing.get_origin(kind)
        if origin in (types.UnionType, typing.Union):
            return self.value(name, self.random.choice(typing.get_args(kind)))
        if kind is type(None):
            return None
        if origin is tuple:
            parts = typing.get_args(kind)
            if parts[-1] is not Ellipsis:
                return tuple(self.value(name, part) for part in parts)
            made = [self.value(name, parts[0]) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
            return tuple(made + made[:1] if self.maybe(0.15) else made)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(kind)
        return self.plain(name, kind)

    def plain(self, name: str, kind: type[Any]) -> Any:
        if kind is bool:
            return self.maybe(0.2)
        if kind is float:
            return self.random.choice((0.0, 1.5, -1.0, float("nan"), float("inf")))
        if kind is str:
            return self.cluster.settings.cluster_id if name == "cluster_id" and self.maybe(0.8) else self.text(name)
        if kind is bytes:
            if name == "incarnation_id":
                return self.random.choice((b"i" * 16, b"j" * 16, bytes(16), b""))
            return self.topic_id() if name == "topic_id" else self.directory()
        return self.integer(name, 63)

    def plausible_alter_partition(self) -> bytes:
        """A leader's request with at most one wrong part."""
        topics = self.image.topics.by_id.items()
        partitions = [(i, n, now) for i, topic in topics for n, now in topic.partitions.items() if now.leader >= 0]
        if not partitions:
            return self.peer(Api.ALTER_PARTITION)
        topic_id, number, now = self.random.choice(sorted(partitions, key=lambda each: each[:2]))
        brokers = self.image.cluster.brokers
        members = [n for n in now.replicas if n == now.leader or self.maybe(0.7)]
        if self.maybe(0.1):
            members.append(self.random.choice((members[0], 99, -1)))
        change = peer_rpc.IsrChange(
            topic_id,
            number,
            now.leader_epoch + self.random.choice((0, 0, 0, 0, 1, -1)),
            tuple((n, brokers[n].epoch if n in brokers and self.maybe(0.9) else self.broker_epoch()) for n in members),
            self.random.choice((0, 0, 0, 1, 7)),
            now.partition_epoch + self.random.choice((0, 0, 0, 0, 1, -1)),
        )
        return msgspec.msgpack.encode(peer_rpc.AlterPartitionRequest(now.leader, brokers[now.leader].epoch, (change,)))


class Clients:
    """Clients and peers of a controller."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.cluster = served.cluster
        self.carried_out: Counter[str] = Counter()
        """Number of carried out calls, by name or peer API."""

    async def call(self, call: Call, *, at_once: bool) -> Any:
        self.served.accepts = at_once
        return await self.served.ask(call)

    async def peer(self, api: int, body: bytes) -> Any:
        """Send a request, mostly as the node that it names."""
        try:
            named = named_node(PEER_SENDERS[api], msgspec.msgpack.decode(body, type=PEER_APIS[api][0]))
        except msgspec.MsgspecError:
            named = -1
        sender = 1 if named == -1 or len(body) % 7 == 0 else named
        return await self.served.peer(api, body, PEER_APIS[api][1], sender)


def _local(api: str) -> Any:
    async def answer(request: Any) -> Any:
        return METHODS[api].response()

    return answer


LOCAL = {api: _local(api) for api, row in CALLS.items() if row.place in (NODE, QUORUM)}


def codes_of(message: Any) -> list[tuple[int, str | None]]:
    """(code, text) of a response and of everything in it that has a code."""
    found: list[tuple[int, str | None]] = []
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            text = getattr(message, "error_message", None) if "error_message" in message.DESCRIPTOR.fields_by_name else None
            found.append((value, text))
        elif field.message_type is not None and field.is_repeated:
            for entry in value:
                found += codes_of(entry)
        elif field.message_type is not None and message.HasField(field.name):
            found += codes_of(value)
    return found


def judge(code: int, text: str | None, asked: object) -> None:
    """The code is in the table and not a fault. The text is helpful, unless Kafka's clients know the code."""
    assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"{text}\n{asked}"
    row = ErrorCode(code)
    if code and text:
        assert len(text) >= 15 and text != row.name, f"{row.name} {text!r}\n{asked}"


def check(cluster: Any) -> None:
    controller = cluster.controller
    cluster.check()
    assert controller.failure is None
    assert controller.committed.index == index_of(controller.committed.image)
    image = controller.committed.image
    assert image_digest(image_from(body for body, _ in ImageSnapshot(image).batches())) == image_digest(image)


async def ask_admin(clients: Clients, maker: Maker, calls: tuple[str, ...]) -> None:
    api = maker.random.choice(calls)
    request = maker.admin(api)
    asked = type(request).FromString(request.SerializeToString())
    before = clients.cluster.controller.newest.image
    call = Call(api, request, maker.random.choice(CALLERS), "127.0.0.1", maker.random.choice(TEXTS))
    response = await clients.call(call, at_once=maker.maybe(0.5))
    codes = codes_of(response)
    assert codes, f"{api} has no place for an error"
    for code, text in codes:
        judge(code, text, f"{api}\n{asked}")
    clients.carried_out[api] += response.header.error_code == 0
    after = clients.cluster.controller.newest.image
    if response.header.error_code or getattr(asked, "validate_only", False):
        assert after.topics is before.topics, f"{api} was refused, or only looked\n{asked}"
        assert after.configs is before.configs
        assert after.acls is before.acls
        assert after.features is before.features


async def ask_as_a_peer(clients: Clients, maker: Maker) -> None:
    api = maker.random.choice(sorted(PEER_APIS))
    body = maker.plausible_alter_partition() if api == Api.ALTER_PARTITION and maker.maybe(0.7) else maker.peer(api)
    answer = await clients.peer(api, body)
    if isinstance(answer, tuple):
        judge(*answer, body)
        return
    judge(answer.error, answer.message, body)
    for result in getattr(answer, "results", ()):
        judge(result.error, None, body)
    clients.carried_out[f"peer api {api}"] += answer.error == 0
    if api == Api.ENVELOPE and answer.response:
        envelope = msgspec.msgpack.decode(body, type=peer_rpc.EnvelopeRequest)
        if envelope.is_frame:
            (version,) = struct.unpack_from(">h", envelope.request, 2)
            decode_response(answer.response[4:], response_class(OFFERS[envelope.api].key), version)
            return
        for code, text in codes_of(METHODS[envelope.api].response.FromString(answer.response)):
            judge(code, text, envelope)


class Unexpected(logging.Handler):
    """Fails the test at any log record of level ERROR."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.getMessage()) from (record.exc_info and record.exc_info[1])


async def play(tools: Any, seed: int, calls: tuple[str, ...]) -> Counter[str]:
    is_guarded = seed % 3 > 0
    static = {AUTHORIZER: "AclAuthorizer"} if is_guarded else {}
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, max_idle_interval_ms=0, static=static))
    await cluster.lead()
    await cluster.start_brokers(0, 1, 2, 3, 4)
    await cluster.create("t", (0, 1, 2), (1, 2, 3), (3, 4, 0))
    await cluster.create("u", (2, 3), (4, 0))
    await cluster.move("u", {0: (2, 1)}, plan_id="friday")
    access = AccessSettings(is_enabled=is_guarded, super_users=frozenset({"User:ANONYMOUS"}))
    clients, maker = Clients(tools.ServedController(cluster, local=LOCAL, access=access)), Maker(cluster, seed)
    for _ in range(REQUESTS):
        await (ask_admin(clients, maker, calls) if maker.maybe(0.7) else ask_as_a_peer(clients, maker))
        check(cluster)
        if maker.maybe(0.1):
            await cluster.pass_time(maker.random.choice((10, 1_000, 20_000)))
        if maker.maybe(0.05):
            await cluster.lose_leadership(survives=maker.maybe(0.5))
            if maker.maybe(0.7):
                await cluster.lead()
        elif not cluster.controller.is_active:
            await cluster.lead()
    cluster.check_images()
    return clients.carried_out


@cache
def played(tools: Any, seed: int, calls: tuple[str, ...] = tuple(sorted(METHODS))) -> Counter[str]:
    """Play one seed with requests of these calls. Return the carried out ones."""
    handler, logger = Unexpected(logging.ERROR), logging.getLogger("kraftlab")
    logger.addHandler(handler)
    try:
        return trio.run(play, tools, seed, calls, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_request_is_answered_from_the_table_and_the_image_holds(tools: Any, seed: int) -> None:
    assert played(tools, seed).total() > REQUESTS // 8, "hardly anything was carried out"


@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 20))
def test_any_request_about_moves_is_answered_from_the_table_and_the_image_holds(tools: Any, seed: int) -> None:
    assert played(tools, seed, MOVE_CALLS).total() > REQUESTS // 8, "hardly anything was carried out"


def test_every_call_is_carried_out_now_and_then(tools: Any) -> None:
    carried_out = sum((played(tools, seed) for seed in range(SEEDS)), Counter())
    here = {api for api in METHODS if CALLS[api].is_replicated or CALLS[api].place is NODE}
    calls = here | {f"peer api {api}" for api in PEER_APIS}
    assert calls <= set(carried_out), sorted(calls - set(carried_out))


def test_every_peer_handler_is_tested(tools: Any) -> None:
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000))
    assert tools.ServedController(cluster).service.peer_handlers().keys() == PEER_APIS.keys()

"""Whatever is asked about configs, quotas and features: an answer with a code from the table, and an image that keeps its
invariants and is the same when it is written and read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.config.topic_configs import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from kraftlab.controller.configs import client_quotas, configs, description, features
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.features import SUPPORTED
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.metadata.snapshot import ImageSnapshot, image_digest, image_from

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=8) | st.sampled_from(
    ["", "0", "1", "-1", "99", "abc", "t", "u", "a b", "x" * 300, "__cluster_metadata", "\x00", "𝔘"]
)
KEYS = st.sampled_from(sorted({*TOPIC_KEYS, *BROKER_KEYS, *GROUP_KEYS, *CLIENT_METRICS_KEYS})) | TEXT
VALUES = (
    st.none()
    | TEXT
    | INT32.map(str)
    | st.sampled_from(["true", "1e400", "nan", "9" * 400, "*", "0:1", "a,b", "compact", "delete,compact"])
)
TYPES = st.sampled_from([2, 4, 8, 16, 32]) | INT32
LEVELS = st.integers(-1, 32) | INT32


@st.composite
def alterations(draw: st.DrawFn) -> pb.IncrementalAlterConfigsRequest:
    request = pb.IncrementalAlterConfigsRequest(validate_only=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        resource = request.resources.add(resource_type=draw(TYPES), resource_name=draw(TEXT))
        for _ in range(draw(st.integers(0, 4))):
            resource.configs.add(name=draw(KEYS), config_operation=draw(st.integers(0, 3) | INT32), value=draw(VALUES))
    return request


@st.composite
def replacements(draw: st.DrawFn) -> pb.AlterConfigsRequest:
    request = pb.AlterConfigsRequest(validate_only=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        resource = request.resources.add(resource_type=draw(TYPES), resource_name=draw(TEXT))
        for _ in range(draw(st.integers(0, 4))):
            resource.configs.add(name=draw(KEYS), value=draw(VALUES))
    return request


@st.composite
def quotas(draw: st.DrawFn) -> pb.AlterClientQuotasRequest:
    request = pb.AlterClientQuotasRequest(validate_only=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        entry = request.entries.add()
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["user", "client-id", "ip"]) | TEXT)
            entry.entity.add(entity_type=kind, entity_name=draw(st.none() | TEXT | st.just("127.0.0.1")))
        for _ in range(draw(st.integers(0, 3))):
            key = draw(st.sampled_from(["producer_byte_rate", "controller_mutation_rate", "connection_creation_rate"]) | TEXT)
            entry.ops.add(key=key, value=draw(st.floats() | st.just(1.0)), remove=draw(st.booleans()))
    return request


@st.composite
def updates(draw: st.DrawFn) -> pb.UpdateFeaturesRequest:
    request = pb.UpdateFeaturesRequest(validate_only=draw(st.booleans()))
    request.header.api_version = draw(st.integers(0, 2))
    for _ in range(draw(st.integers(0, 3))):
        request.feature_updates.add(
            feature=draw(st.sampled_from(sorted(SUPPORTED)) | TEXT),
            max_version_level=draw(LEVELS),
            allow_downgrade=draw(st.booleans()),
            upgrade_type=draw(st.none() | st.integers(0, 4) | INT32),
        )
    return request


@st.composite
def descriptions(draw: st.DrawFn) -> pb.DescribeConfigsRequest:
    request = pb.DescribeConfigsRequest(include_synonyms=draw(st.booleans()), include_documentation=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        resource = request.resources.add(resource_type=draw(TYPES), resource_name=draw(TEXT))
        if draw(st.booleans()):
            resource.configuration_keys.values.extend(draw(st.lists(KEYS, max_size=3)))
    return request


@st.composite
def filters(draw: st.DrawFn) -> pb.DescribeClientQuotasRequest:
    request = pb.DescribeClientQuotasRequest(strict=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["user", "client-id", "ip"]) | TEXT)
        request.components.add(entity_type=kind, match_type=draw(st.integers(0, 2) | INT32), match=draw(st.none() | TEXT))
    return request


WRITES: dict[type[Any], Callable[..., Any]] = {
    pb.IncrementalAlterConfigsRequest: configs.alter,
    pb.AlterConfigsRequest: configs.replace,
    pb.AlterClientQuotasRequest: client_quotas.alter,
    pb.UpdateFeaturesRequest: features.update,
}
BROKER = st.none() | st.just(ForwardingBroker(0, {"node.id": "0", "log.dirs": "/a,/b", "num.io.threads": "4"}))
REQUESTS = st.one_of(alterations(), replacements(), quotas(), updates(), descriptions(), filters())


def entries_of(response: Any) -> list[Any]:
    return [entry for name in ("responses", "results", "entries") for entry in _repeated(response, name)]


def _repeated(response: Any, name: str) -> list[Any]:
    found = getattr(response, name, [])
    return [] if name == "entries" and not isinstance(response, pb.AlterClientQuotasResponse) else list(found)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(REQUESTS, BROKER), max_size=12))
def test_every_request_is_answered_from_the_table_and_leaves_a_sound_image(
    tools: Any, requests: list[tuple[Any, ForwardingBroker | None]]
) -> None:
    async def ask_them_all() -> None:
        cluster = tools.Cluster()
        await cluster.lead()
        await cluster.start_brokers(0, 1)
        await cluster.create("t", (0, 1))
        for request, broker in requests:
            try:
                response = await answer(cluster, request, broker)
            except ApiError as error:
                assert error.code != ErrorCode.UNKNOWN_SERVER_ERROR, error.message
                continue
            for entry in entries_of(response):
                assert entry.error_code != ErrorCode.UNKNOWN_SERVER_ERROR
                assert not entry.error_code or ErrorCode(entry.error_code)
        image = cluster.controller.committed.image
        again = image_from([body for body, _ in ImageSnapshot(image).batches()])
        assert image_digest(again) == image_digest(image)

    trio.run(ask_them_all)


async def answer(cluster: Any, request: Any, broker: ForwardingBroker | None) -> Any:
    operation = WRITES.get(type(request))
    if operation is not None:
        return await cluster.write(lambda s, r, c: operation(s, r, c._replace(broker=broker)), request)
    if isinstance(request, pb.DescribeConfigsRequest):
        return description.describe(cluster.controller.committed, request, cluster.settings, broker)
    return client_quotas.describe(cluster.controller.committed, request)

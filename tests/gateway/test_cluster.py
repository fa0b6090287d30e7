"""DescribeCluster from the published image: nodes of one kind, by their KAFKA listeners."""

from __future__ import annotations

from typing import Any

import immutables
import pytest

from kraftlab.access import NOT_ASKED
from kraftlab.access.refusals import BROKERS, CONTROLLERS
from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.cluster import ClusterCalls
from kraftlab.gateway.codec import Header, KafkaRequest
from kraftlab.messages.generated.describe_cluster_request import DescribeClusterRequest
from kraftlab.metadata.image import ClusterImage, ControllerImage
from kraftlab.metadata.records import Listener
from kraftlab.rpc.caller import Caller

from .conftest import broker, everything, limited_to

CALLER = Caller("User:ANONYMOUS", "127.0.0.1")


def controller(node_id: int, *, kafka: bool) -> ControllerImage:
    listeners = (Listener("KAFKA", "127.0.0.1", node_id),) if kafka else ()
    return ControllerImage(node_id, bytes(16), listeners, ())


CLUSTER = ClusterImage(
    brokers=immutables.Map({1: broker(1), 2: broker(2, fenced=True), 3: broker(3, kafka=False), 4: broker(4)}),
    controllers=immutables.Map({3000: controller(3000, kafka=True), 3001: controller(3001, kafka=False)}),
)


async def ask(
    version: int = 2, node_id: int = 4, own: int = BROKERS, active: int = -1, rights: Any = everything, **fields: Any
) -> Any:
    calls = ClusterCalls(node_id, "cluster", own, lambda: CLUSTER, rights, lambda: active)
    return await calls.describe(KafkaRequest(Header(60, version, 1), "", DescribeClusterRequest(**fields)), CALLER)


async def test_brokers_with_a_kafka_listener_are_named_and_the_answering_one_takes_the_calls() -> None:
    answer = await ask(active=3000)
    assert [(row.broker_id, row.port, row.rack) for row in answer.brokers] == [(1, 9001, "rack-1"), (4, 9004, "rack-4")]
    assert (answer.cluster_id, answer.controller_id, answer.endpoint_type) == ("cluster", 4, BROKERS)
    assert answer.cluster_authorized_operations == NOT_ASKED


async def test_fenced_brokers_are_named_on_request() -> None:
    answer = await ask(include_fenced_brokers=True)
    assert [(row.broker_id, row.is_fenced) for row in answer.brokers] == [(1, False), (2, True), (4, False)]


async def test_a_broker_that_is_not_named_gives_its_calls_to_the_first() -> None:
    assert (await ask(node_id=3)).controller_id == 1


async def test_controllers_name_controllers_and_the_active_one() -> None:
    answer = await ask(node_id=3001, own=CONTROLLERS, active=3000, endpoint_type=CONTROLLERS)
    assert [(row.broker_id, row.port) for row in answer.brokers] == [(3000, 3000)]
    assert (answer.controller_id, answer.endpoint_type) == (3000, CONTROLLERS)


@pytest.mark.parametrize(
    ("version", "own", "wanted", "code"),
    [
        (1, BROKERS, CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, CONTROLLERS, BROKERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, BROKERS, 7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (0, CONTROLLERS, BROKERS, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_another_kind_of_endpoint_is_refused(version: int, own: int, wanted: int, code: ErrorCode) -> None:
    answer = await ask(version, own=own, endpoint_type=wanted)
    assert (answer.error_code, answer.controller_id, answer.brokers) == (code, -1, ())
    assert answer.error_message


async def test_operations_on_the_cluster_are_shown_to_those_who_may_describe_it() -> None:
    shown = await ask(include_cluster_authorized_operations=True)
    assert shown.cluster_authorized_operations > 0
    hidden = await ask(include_cluster_authorized_operations=True, rights=limited_to())
    assert hidden.cluster_authorized_operations == 0

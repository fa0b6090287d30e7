"""The client names its writes: one id through all sendings of a call, and never the same for two calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, OutcomeUnknown
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.request_ids import RequestIds

ID = tuple[bytes, int]


def ids(node: Any, api: str = "CreateTopics") -> list[ID]:
    """Return the ids of the requests to a node, (b"", 0) for requests without an id."""
    headers = [call.request.header for call in node.calls if call.api == api]
    return [(header.request_id.client_id, header.request_id.sequence) for header in headers]


def create(client: AdminClient, **options: Any) -> Any:
    return client.create_topics([pb.CreatableTopic(name="t")], **options)


def test_each_write_has_an_id_of_its_own(cluster) -> None:
    with AdminClient(cluster.nodes[0].server) as client:
        create(client)
        create(client)
        client.delete_topics(["t"])
    first, second = ids(cluster.nodes[0])
    [third] = ids(cluster.nodes[0], "DeleteTopics")
    assert len(first[0]) == 16
    assert {first[0], second[0], third[0]} == {first[0]}
    assert [first[1], second[1], third[1]] == [1, 2, 3]


def test_clients_have_different_ids(cluster) -> None:
    for _ in range(2):
        with AdminClient(cluster.nodes[0].server) as client:
            create(client)
    assert len({client_id for client_id, _ in ids(cluster.nodes[0])}) == 2


def test_a_write_keeps_its_id_from_node_to_node(cluster) -> None:
    with AdminClient(cluster.nodes[1].server) as client:
        create(client)
    assert ids(cluster.nodes[1]) == ids(cluster.nodes[0])


def test_an_answer_that_does_not_come_is_asked_for_again_with_the_same_id(cluster) -> None:
    never = threading.Event()

    def answer_late(request: Any) -> pb.CreateTopicsResponse:
        cluster.lead(cluster.nodes[2])
        never.wait(0.4)
        return pb.CreateTopicsResponse()

    cluster.nodes[0].answers["CreateTopics"] = answer_late
    with AdminClient(",".join(node.server for node in cluster.nodes)) as client:
        client.call(pb.CreateTopicsResponse, pb.CreateTopicsRequest(), attempt_timeout_s=0.2)
    assert ids(cluster.nodes[0])[0] == ids(cluster.nodes[2])[0]


def test_a_node_that_gives_up_early_is_asked_again(cluster) -> None:
    codes = iter([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE])
    cluster.nodes[0].answers["CreateTopics"] = lambda _: pb.CreateTopicsResponse(
        header=pb.ResponseHeader(error_code=next(codes), error_message="shutting down")
    )
    with AdminClient(cluster.nodes[0].server) as client:
        create(client)
    first, second = ids(cluster.nodes[0])
    assert first == second


def test_without_ids_a_timeout_is_raised_at_once(cluster) -> None:
    cluster.nodes[0].answers["CreateTopics"] = lambda _: pb.CreateTopicsResponse(
        header=pb.ResponseHeader(error_code=7, error_message="late")
    )
    with AdminClient(cluster.nodes[0].server, exactly_once=False) as client, pytest.raises(ApiError, match="late"):
        create(client)
    assert len(ids(cluster.nodes[0])) == 1


def test_a_timeout_after_a_sending_without_answer_does_not_say_that_nothing_was_done(cluster) -> None:
    never = threading.Event()

    def answer(request: Any) -> pb.CreateTopicsResponse:
        never.wait(0.4 if len(ids(cluster.nodes[0])) == 1 else 0)
        return pb.CreateTopicsResponse(header=pb.ResponseHeader(error_code=7, error_message="Nothing was done."))

    cluster.nodes[0].answers["CreateTopics"] = answer
    client = AdminClient(cluster.nodes[0].server, exactly_once=False)
    with (
        client,
        pytest.raises(OutcomeUnknown, match=r"Nothing was done\. But .* did not answer; the request may have taken effect"),
    ):
        client.call(pb.CreateTopicsResponse, pb.CreateTopicsRequest(), attempt_timeout_s=0.2)


LOST = pb.ResponseHeader(error_code=41, error_message="the leadership was lost", metadata_offset=9, outcome_unknown=True)


def test_a_change_that_may_survive_its_controller_is_not_asked_for_again_without_an_id(cluster) -> None:
    cluster.nodes[0].answers["UnregisterBroker"] = lambda _: pb.UnregisterBrokerResponse(header=LOST)
    client = AdminClient(",".join(node.server for node in cluster.nodes), exactly_once=False)
    with client, pytest.raises(OutcomeUnknown, match="the leadership was lost") as raised:
        client.unregister_broker(3)
    assert raised.value.offset == 9
    assert [len(node.calls) for node in cluster.nodes] == [1, 0, 0]


def test_a_timeout_after_a_change_that_may_survive_does_not_say_that_nothing_was_done(cluster) -> None:
    def lose(_: Any) -> pb.CreateTopicsResponse:
        cluster.lead(cluster.nodes[1])
        return pb.CreateTopicsResponse(header=LOST)

    late = pb.ResponseHeader(error_code=7, error_message="Nothing was done.")
    cluster.nodes[0].answers["CreateTopics"] = lose
    cluster.nodes[1].answers["CreateTopics"] = lambda _: pb.CreateTopicsResponse(header=late)
    request = pb.CreateTopicsRequest(header=pb.RequestHeader(timeout_ms=500))
    with AdminClient(cluster.nodes[0].server) as client, pytest.raises(OutcomeUnknown, match=r"Nothing was done\. But .* lost"):
        client.call(pb.CreateTopicsResponse, request)


def test_reads_and_validations_have_no_id(cluster) -> None:
    with AdminClient(cluster.nodes[0].server) as client:
        create(client, validate_only=True)
        client.describe_cluster()
    assert ids(cluster.nodes[0]) == ids(cluster.nodes[0], "DescribeCluster") == [(b"", 0)]


def test_ids_can_be_switched_off(cluster) -> None:
    with AdminClient(cluster.nodes[0].server, exactly_once=False) as client:
        create(client)
    assert ids(cluster.nodes[0]) == [(b"", 0)]


def test_the_same_message_sent_twice_is_two_requests(cluster) -> None:
    request = pb.CreateTopicsRequest()
    with AdminClient(cluster.nodes[0].server) as client:
        client.call(pb.CreateTopicsResponse, request)
        client.call(pb.CreateTopicsResponse, request)
    first, second = ids(cluster.nodes[0])
    assert first != second
    assert not request.header.HasField("request_id")


def test_an_id_that_the_caller_gives_is_left_alone(cluster) -> None:
    own = pb.RequestId(client_id=bytes(16), sequence=77)
    request = pb.CreateTopicsRequest(header=pb.RequestHeader(request_id=own))
    with AdminClient(cluster.nodes[0].server) as client:
        client.call(pb.CreateTopicsResponse, request)
    assert ids(cluster.nodes[0]) == [(bytes(16), 77)]
    assert request.header.request_id == own


def test_calls_at_the_same_time_never_share_a_client_id(cluster) -> None:
    under_way = threading.Barrier(8)
    request_ids = RequestIds(enabled=True)

    def work() -> None:
        request = pb.CreateTopicsRequest()
        with request_ids.of("CreateTopics", request):
            under_way.wait(10)
            seen.append(request.header.request_id.client_id)
            under_way.wait(10)

    seen: list[bytes] = []
    for _ in range(2):
        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(10)
    assert len(set(seen[:8])) == 8
    assert set(seen[8:]) == set(seen[:8])


def test_configs_of_a_controller_that_is_not_active_are_changed_by_the_one_that_is(cluster) -> None:
    cluster.describe()
    described = cluster.nodes[0].answers["DescribeCluster"](None)
    described.controllers.add(controller_id=3001, host="127.0.0.1", port=cluster.nodes[2].port)
    cluster.nodes[0].answers["IncrementalAlterConfigs"] = lambda _: pb.IncrementalAlterConfigsResponse(
        responses=[pb.AlterConfigsResourceResponse(resource_type=4, resource_name="3001")]
    )
    with AdminClient(cluster.nodes[0].server) as client:
        client.incremental_alter_configs([pb.AlterConfigsResource(resource_type=4, resource_name="3001")])
    assert ids(cluster.nodes[2], "IncrementalAlterConfigs") == ids(cluster.nodes[0], "IncrementalAlterConfigs")


def test_loggers_of_an_unreachable_broker_go_to_no_other_node(cluster) -> None:
    cluster.describe()
    resource = pb.AlterConfigsResource(resource_type=8, resource_name="1")
    with AdminClient(cluster.nodes[0].server) as client:
        client.describe_cluster()
        cluster.stop_node(cluster.nodes[1])
        with pytest.raises(ClusterUnreachable, match=f"{cluster.nodes[1].server}: (connection refused|no answer)"):
            client.incremental_alter_configs([resource], timeout_ms=1_000)
    assert ids(cluster.nodes[0], "IncrementalAlterConfigs") == []


def test_configs_of_a_broker_that_does_not_answer_are_changed_by_the_controller_under_the_same_id(cluster) -> None:
    cluster.describe()
    resource = pb.AlterConfigsResource(resource_type=4, resource_name="1")
    with AdminClient(cluster.nodes[0].server) as client:
        client.describe_cluster()
        cluster.stop_node(cluster.nodes[1])
        cluster.nodes[0].answers["IncrementalAlterConfigs"] = lambda _: pb.IncrementalAlterConfigsResponse(
            responses=[pb.AlterConfigsResourceResponse(resource_type=4, resource_name="1")]
        )
        client.incremental_alter_configs([resource], timeout_ms=3_000)
    [(client_id, sequence)] = ids(cluster.nodes[0], "IncrementalAlterConfigs")
    assert (len(client_id), sequence) == (16, 1)


def test_a_stream_raises_outcome_unknown(cluster) -> None:
    cluster.nodes[0].answers["UnregisterBroker"] = lambda _: pb.UnregisterBrokerResponse(header=LOST)
    with AdminClient(cluster.nodes[0].server) as client, client.open_stream() as stream:
        future = stream.submit("UnregisterBroker", pb.UnregisterBrokerRequest(broker_id=3))
        with pytest.raises(OutcomeUnknown, match="the leadership was lost") as raised:
            future.result(10)
    assert raised.value.offset == 9

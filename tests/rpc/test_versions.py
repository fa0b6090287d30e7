"""Offers of ApiVersions, and refusals of requests that are not offered."""

from __future__ import annotations

import pytest
import trio

from kraftlab.access.refusals import BROKERS, CONTROLLERS, check_endpoint_type
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.admin.v1 import admin_pb2_grpc
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc import api_versions
from kraftlab.rpc.calls import BROKER_OFFERS, CONTROLLER_OFFERS, OFFERS
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.versions import refusal, version_of


def versioned(version: int | None) -> pb.RequestHeader:
    return pb.RequestHeader(api_version=version)


def described(version: int | None = None, name: str | None = None, software: str | None = None) -> pb.ApiVersionsResponse:
    request = pb.ApiVersionsRequest(header=versioned(version), client_software_name=name, client_software_version=software)
    return api_versions.describe(request, BROKER_OFFERS, {"group.version": 1, "share.version": 0}, 1, 77)


# --- the table ----------------------------------------------------------------------------------------------------------


def test_each_role_has_the_offers_of_kafka_s_in_the_order_of_keys() -> None:
    assert (len(BROKER_OFFERS), len(CONTROLLER_OFFERS)) == (75, 41)
    for offers in (BROKER_OFFERS, CONTROLLER_OFFERS):
        keys = [offer.key for offer in offers]
        assert keys == sorted(set(keys))
        assert all(offer.lowest <= offer.highest for offer in offers)
    assert {offer.name: offer for offer in BROKER_OFFERS}.items() <= OFFERS.items()


def test_every_call_that_kafka_has_is_in_the_table_by_its_name() -> None:
    ours = {
        "AlterInterBrokerThrottle",
        "AlterPartitionCounts",
        "AlterReplicationFactors",
        "CancelReassignments",
        "CreateSnapshot",
        "DescribeImage",
        "DescribeMetadata",
        "ForgetPlans",
        "ListMetadataRecords",
        "ListSnapshots",
        "RollbackPlan",
        "TransferLeadership",
    }
    assert ours.isdisjoint(OFFERS)
    assert METHODS.keys() - OFFERS.keys() >= ours
    assert {"CreateTopics", "AlterPartitionReassignments", "ApiVersions"} <= OFFERS.keys()


def test_a_request_without_a_version_is_the_newest_that_is_offered() -> None:
    assert version_of(pb.CreateTopicsRequest()) == 7
    assert version_of(pb.CreateTopicsRequest(header=versioned(4))) == 4
    assert version_of(pb.CreateSnapshotRequest()) == 0


@pytest.mark.parametrize(
    ("api", "version", "is_refused"),
    [
        ("CreateTopics", None, False),
        ("CreateTopics", 1, True),
        ("CreateTopics", 2, False),
        ("CreateTopics", 7, False),
        ("CreateTopics", 8, True),
        ("CreateTopics", -1, True),
        ("CreateSnapshot", 0, False),
        ("CreateSnapshot", 1, True),
        ("ApiVersions", 99, False),
    ],
)
def test_only_offered_versions_pass(api: str, version: int | None, is_refused: bool) -> None:
    method = METHODS[api]
    answer = refusal(method, method.request(header=versioned(version)))
    assert (answer is not None) == is_refused
    if answer is not None:
        assert isinstance(answer, method.response)
        assert answer.header.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]


async def test_the_server_refuses_a_version_before_anything_is_dispatched(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    response = await trio.to_thread.run_sync(stub.DescribeCluster, pb.DescribeClusterRequest(header=versioned(3)))
    assert response.header.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "DescribeCluster version 3 is not offered; use version 0 to 2" in response.header.error_message
    assert echo.calls == []


# --- ApiVersions --------------------------------------------------------------------------------------------------------


def test_offers_and_features_are_described() -> None:
    response = described()
    assert [(offer.name, offer.api_key) for offer in response.api_keys][:2] == [("Produce", 0), ("Fetch", 1)]
    assert len(response.api_keys) == 75
    assert [feature.name for feature in response.supported_features] == sorted(
        feature.name for feature in response.supported_features
    )
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized == {"group.version": 1, "kraft.version": 1}, "level 0 is no level"
    assert response.finalized_features_epoch == 77


def test_older_clients_get_no_features_that_begin_at_level_0() -> None:
    assert [feature.name for feature in described(3).supported_features] == ["metadata.version"]
    assert len(described(4).supported_features) == 7


@pytest.mark.parametrize(("name", "software"), [("", "1"), ("x y", "1"), ("x", ""), ("-x", "1"), ("x.", "1")])
def test_software_has_a_proper_name_from_version_3_on(name: str, software: str) -> None:
    with pytest.raises(ApiError, match="is not a valid name of software") as refused:
        described(3, name, software)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert described(2, name, software).api_keys
    assert described(4, "librdkafka", "2.3.0-rc.1").api_keys


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_of_this_call_that_is_not_offered_is_answered_so_that_the_client_can_ask_again(version: int) -> None:
    response = described(version)
    assert response.header.error_code == ErrorCode.UNSUPPORTED_VERSION
    [offer] = response.api_keys
    assert (offer.api_key, offer.min_version, offer.max_version) == (18, 0, 4)


# --- endpoint types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "own", "version", "code"),
    [
        (BROKERS, CONTROLLERS, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (CONTROLLERS, BROKERS, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (CONTROLLERS, BROKERS, 0, ErrorCode.INVALID_REQUEST),
        (3, BROKERS, 2, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (0, BROKERS, 2, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_another_kind_of_endpoint_is_refused(wanted: int, own: int, version: int, code: ErrorCode) -> None:
    request = pb.DescribeClusterRequest(header=versioned(version), endpoint_type=wanted)
    with pytest.raises(ApiError) as refused:
        check_endpoint_type(request, own)
    assert refused.value.code == code


def test_a_request_without_a_type_or_with_the_right_one_is_answered() -> None:
    check_endpoint_type(pb.DescribeClusterRequest(), BROKERS)
    check_endpoint_type(pb.DescribeClusterRequest(endpoint_type=CONTROLLERS), CONTROLLERS)

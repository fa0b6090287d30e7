"""A log cannot be read while no controller leads: a broker that says so is as good as nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client.errors import ClusterUnreachable
from kraftlab.client.metadata_log import MetadataLog
from kraftlab.metadata.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from .conftest import FakeCluster


def refused(cluster: FakeCluster, code: ErrorCode) -> None:
    header = pb.ResponseHeader(error_code=code.value, error_message="connection refused")
    cluster.nodes[0].answers["DescribeQuorum"] = lambda _: pb.DescribeQuorumResponse(header=header)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE])
def test_a_question_that_could_not_be_passed_on_finds_nobody(cluster: FakeCluster, code: ErrorCode) -> None:
    refused(cluster, code)
    with MetadataLog(cluster.nodes[0].server, timeout_ms=300) as log:
        with pytest.raises(ClusterUnreachable, match="connection refused"):
            log.state()
        with pytest.raises(ClusterUnreachable):
            _ = log.cluster_id


def test_a_refusal_is_one(cluster: FakeCluster) -> None:
    refused(cluster, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with MetadataLog(cluster.nodes[0].server, timeout_ms=300) as log, pytest.raises(ApiError):
        log.state()

"""Replicas are asked into directories before a reassignment starts, and what was asked is taken back if a broker refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.reassign import Execution, ReassignmentFailed
from kraftlab.cli.reassign_plan import Plan
from kraftlab.metadata.errors import ApiError, ErrorCode


class Brokers:
    """Broker 1 takes whatever it is asked, broker 2 refuses whole requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Mapping[tuple[str, int], str]]] = []

    def alter_replica_log_dirs(self, broker: int, moves: Mapping[tuple[str, int], str]) -> pb.AlterReplicaLogDirsResponse:
        self.asked.append((broker, dict(moves)))
        if broker == 2:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")
        return pb.AlterReplicaLogDirsResponse()

    def alter_partition_reassignments(self, *_: object, **__: object) -> pb.AlterPartitionReassignmentsResponse:
        raise ApiError(ErrorCode.INVALID_REQUEST, "there is such a plan already")

    def paths(self) -> list[str]:
        """What broker 1 was asked for."""
        return [path for broker, moves in self.asked if broker == 1 for path in moves.values()]


def execution(brokers: Any) -> Execution:
    return Execution(brokers, Plan(()), lambda lines: None, rate=-1, log_dir_rate=-1, timeout_ms=0, allow_change=True)


def test_a_broker_that_refuses_a_whole_request_has_the_others_forget_theirs() -> None:
    brokers = Brokers()
    with pytest.raises(ReassignmentFailed, match="Error: Failed to alter dir for t-0-2: not allowed"):
        execution(brokers)._ask_for_births({("t", 0, 1): "/d1", ("t", 0, 2): "/d2"})
    assert brokers.paths() == ["/d1", "any"]


def test_a_reassignment_that_is_refused_as_a_whole_has_brokers_forget_what_they_were_asked() -> None:
    brokers = Brokers()
    births = {("t", 0, 1): "/d1"}
    run = execution(brokers)
    run._ask_for_births(births)
    with pytest.raises(ApiError, match="such a plan already"):
        run._start(births, {})
    assert brokers.paths() == ["/d1", "any"]

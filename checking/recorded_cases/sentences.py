"""Sentences of `await` and `observe` steps as conditions on the cluster.

`_FORMS` has the known forms. The step of another sentence waits until the next request is answered as recorded, as the runner
does for every request without effects.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

from kraftlab.admin.v1 import admin_pb2 as pb

from .lab import POLL_S, Lab, LabFault
from .paths import Value

Question = Callable[[Lab], bool]
OBSERVED_S = 0.3
"""Time for which an observed condition has to hold."""


def question(what: str) -> Question | None:
    """Return a test of the condition in a sentence, None for an unknown form."""
    for form, make in _FORMS:
        found = form.fullmatch(what)
        if found is not None:
            return make(found)
    return None


def observe(lab: Lab, what: str, is_true: Question) -> None:
    """Check that a condition holds for a while. LabFault."""
    deadline = time.monotonic() + OBSERVED_S
    while True:
        if not is_true(lab):
            raise LabFault(f"not observed: {what}")
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_S)


# --- what can be asked --------------------------------------------------------------------------------------------------


def _partition(lab: Lab, topic: str, index: int) -> Value:
    request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[topic]))
    for found in lab.call("controller", "DescribeTopicPartitions", request).topics:
        for partition in found.partitions:
            if partition.partition_index == index:
                return partition
    return None


def _is_reassigned(lab: Lab, topic: str) -> bool:
    response = lab.call("controller", "ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
    return any(item.name == topic and item.partitions for item in response.topics)


def _places(lab: Lab, broker: int, topic: str, index: int) -> list[tuple[int, bool]]:
    """Return (log dir, is future) of a broker's replicas of a partition."""
    wanted = pb.DescribableLogDirTopics(values=[pb.DescribableLogDirTopic(topic=topic, partitions=[index])])
    response = lab.call(broker, "DescribeLogDirs", pb.DescribeLogDirsRequest(topics=wanted))
    dirs = [str(path) for path in lab.cluster.log_dirs(broker)]
    return [
        (dirs.index(result.log_dir), replica.is_future_key)
        for result in response.results
        for found in result.topics
        for replica in found.partitions
        if found.name == topic and replica.partition_index == index
    ]


def _holds(lab: Lab, broker: int) -> bool:
    """Return whether a broker has a replica of a scenario's topic."""
    response = lab.call(broker, "DescribeLogDirs", pb.DescribeLogDirsRequest())
    return any(found.partitions for result in response.results for found in result.topics if found.name not in lab.own_topics)


def _no_reassignment(found: re.Match[str]) -> Question:
    return lambda lab: not _is_reassigned(lab, found["topic"])


def _still_reassigned(found: re.Match[str]) -> Question:
    return lambda lab: _is_reassigned(lab, found["topic"])


def _nodes(field: str) -> Callable[[re.Match[str]], Question]:
    def make(found: re.Match[str]) -> Question:
        wanted = sorted(json.loads(found["nodes"]))

        def is_so(lab: Lab) -> bool:
            partition = _partition(lab, found["topic"], int(found["partition"]))
            return partition is not None and sorted(getattr(partition, field)) == wanted

        return is_so

    return make


def _leader(found: re.Match[str]) -> Question:
    def is_so(lab: Lab) -> bool:
        partition = _partition(lab, found["topic"], int(found["partition"]))
        wanted = -1 if found["leader"] in ("none", "-1") else int(found["leader"])
        return partition is not None and partition.leader_id == wanted

    return is_so


def _lies_in(found: re.Match[str]) -> Question:
    wanted = [(int(found["dir"]), False)]
    return lambda lab: _places(lab, int(found["broker"]), found["topic"], int(found["partition"])) == wanted


def _no_log(found: re.Match[str]) -> Question:
    return lambda lab: not _holds(lab, int(found["broker"]))


def _fenced(found: re.Match[str]) -> Question:
    def is_so(lab: Lab) -> bool:
        response = lab.admin.describe_cluster(include_fenced_brokers=True)
        states = [item.is_fenced for item in response.brokers if item.broker_id == int(found["broker"])]
        return states == [found["state"] == "fenced"]

    return is_so


_OF = r"(?P<topic>\S+)-(?P<partition>\d+)"
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Question]], ...] = (
    (re.compile(r"no reassignment on topic (?P<topic>\S+)"), _no_reassignment),
    (re.compile(r".*the reassignment of topic (?P<topic>\S+) is still listed.*"), _still_reassigned),
    (re.compile(rf"isr of {_OF} is (?P<nodes>\[[\d, ]*\])"), _nodes("isr_nodes")),
    (re.compile(rf"replicas of {_OF} (?:is|are) (?P<nodes>\[[\d, ]*\])"), _nodes("replica_nodes")),
    (
        re.compile(rf"(?:elr|eligible leader replicas) of {_OF} (?:is|are) (?P<nodes>\[[\d, ]*\])"),
        _nodes("eligible_leader_replicas"),
    ),
    (re.compile(rf"leader of {_OF} is (?P<leader>-?\d+|none)"), _leader),
    (re.compile(rf"{_OF} of broker (?P<broker>\d+) lies in dir (?P<dir>\d+), no future replica"), _lies_in),
    (re.compile(r"no log of the partition on broker (?P<broker>\d+)"), _no_log),
    (re.compile(r"broker (?P<broker>\d+) is (?P<state>fenced|unfenced)"), _fenced),
)

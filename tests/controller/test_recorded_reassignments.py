"""Reassignment requests with the answers that Apache Kafka 4.3.0 gave, replayed against the controller.

Each scenario goes as far as no data has to be copied: codes, texts, lists, and the state of the partitions in between.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.reassignment.listing import Observer
from kraftlab.controller.reassignment.listing import listing as listing_of

SCENARIOS = json.loads((Path(__file__).parent / "data" / "recorded_reassignments.json").read_text())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["name"] for scenario in SCENARIOS])
async def test_answers_as_recorded(five: Any, tools: Any, scenario: dict[str, Any]) -> None:
    for name, assignment in scenario["topics"].items():
        await five.create(name, *(tuple(assignment[index]) for index in sorted(assignment, key=int)))
    for broker_id in scenario["stopped"]:
        await five.stop_broker(broker_id)
    for step in scenario["steps"]:
        if "alter" in step:
            request = tools.reassignment_request(step["alter"], step["allow"])
            response = await five.write(reassignments.alter, request)
            answer = [
                [topic.name, [[p.partition_index, p.error_code, p.error_message] for p in topic.partitions]]
                for topic in response.responses
            ]
            assert answer == step["answer"], scenario["shows"]
        elif "list" in step:
            assert listing(five, step["list"]) == step["answer"], scenario["shows"]
        else:
            for name, index, replicas, isr, leader, leader_epoch in step["describe"]:
                partition = five.partition(name, index)
                found = [list(partition.replicas), list(partition.isr), partition.leader, partition.leader_epoch]
                assert found == [replicas, isr, leader, leader_epoch], scenario["shows"]


def listing(cluster: Any, asked: list[Any] | None) -> list[Any]:
    request = admin_pb2.ListPartitionReassignmentsRequest()
    if asked is not None:
        request.topics.SetInParent()
        for name, indexes in asked:
            request.topics.topics.add(name=name, partition_indexes=indexes)
    controller = cluster.controller
    observer = Observer(controller.moves.progress, cluster.clock.now_ms, cluster.settings)
    response = listing_of(controller.committed, request, observer)
    return [
        [
            topic.name,
            [[p.partition_index, list(p.replicas), list(p.adding_replicas), list(p.removing_replicas)] for p in topic.partitions],
        ]
        for topic in response.topics
    ]

"""Brokers that are killed while producers append: replicas become equal again and every acknowledged record is there."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.demo.lab import wait_until
from kraftlab.demo.load import Producer, missing


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_replicas_become_equal_after_a_kill_and_no_acknowledged_record_is_lost(lab: Any, role: str) -> None:
    topic = f"killed-{role}"
    lab.create_topic(topic, [0, 1, 2], configs={"min.insync.replicas": "2"})
    victim = 0 if role == "leader" else 1
    producer = Producer(lab.cluster, [(topic, 0)])
    producer.start()
    try:
        wait_until("records are acknowledged", lambda: producer.records >= 100)
        lab.cluster.kill_node(victim)
        before = producer.records
        wait_until("producers go on without the broker", lambda: producer.records >= before + 100)
        lab.cluster.start_node(victim)
        lab.cluster.wait_ready()
        before = producer.records
        wait_until("producers go on with it", lambda: producer.records >= before + 100)
    finally:
        producer.stop()
    wait_until("replicas become equal", lambda: lab.replicas_are_equal(topic))
    assert missing(lab.data, (topic, 0), producer.acknowledged[topic, 0]) == 0
    assert not lab.strays()


def test_a_paused_leader_is_replaced_and_returns_as_a_follower(lab: Any) -> None:
    topic = "stood-still"
    lab.create_topic(topic, [0, 1, 2], configs={"min.insync.replicas": "2"})
    early, late = (Producer(lab.cluster, [(topic, 0)]) for _ in range(2))
    early.start()
    try:
        wait_until("records are acknowledged", lambda: early.records >= 100)
        lab.cluster.pause_node(0)
        wait_until("another broker leads", lambda: lab.partitions()[topic, 0].leader_id not in (None, 0))
        late.start()
        wait_until("producers go on without the broker", lambda: late.records >= 100)
        lab.cluster.resume_node(0)
        wait_until("it is in sync again", lambda: 0 in lab.partitions()[topic, 0].isr_nodes)
        before = early.records
        wait_until("whoever waited for it goes on too", lambda: early.records > before)
    finally:
        lab.cluster.resume_node(0)
        early.stop()
        late.stop()
    wait_until("replicas become equal", lambda: lab.replicas_are_equal(topic))
    for producer in (early, late):
        assert missing(lab.data, (topic, 0), producer.acknowledged[topic, 0]) == 0


def test_a_broker_that_stops_gracefully_hands_over_before_it_goes(lab: Any) -> None:
    lab.create_topic("handed-over", [2, 0, 1])
    assert lab.cluster.stop_node(2)
    placed = lab.partitions()["handed-over", 0]
    assert placed.leader_id != 2
    assert 2 not in placed.isr_nodes
    lab.fill("handed-over", 20_000)
    lab.cluster.start_node(2)
    wait_until("it is in sync again", lambda: lab.replicas_are_equal("handed-over"))

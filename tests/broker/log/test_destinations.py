"""Remembered destinations of replicas that are not here yet: kept over restarts, bounded, forgotten in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftlab.broker.log.destinations import FILE_NAME, Destinations

from .conftest import OTHER, TOPIC, Broker, crashed, failing, replica


def test_a_destination_survives_a_crash_and_is_forgotten_once_it_was_used(broker: Broker) -> None:
    manager = broker.start()
    manager.destinations.remember("t", 0, broker.ids[1])
    manager.destinations.save()
    manager = broker.start()
    for number in range(2):
        manager.get_or_create("t", TOPIC, number, broker.ids[0])
    assert [manager.get(TOPIC, number).log_dir for number in range(2)] == [broker.dirs[1], broker.dirs[0]]
    assert len(manager.destinations) == 0
    assert len(broker.open().destinations) == 1, "the file was not written since"
    assert len(broker.start(replica(broker, 1)).destinations) == 0, "the replica is there"


def test_a_destination_of_a_deleted_topic_is_not_that_of_a_new_topic_of_its_name(broker: Broker) -> None:
    manager = broker.start()
    manager.destinations.remember("t", 0, broker.ids[1], OTHER)
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0]).log_dir == broker.dirs[0]


def test_destinations_follow_the_topics() -> None:
    destinations = Destinations()
    for topic, topic_id in (("later", None), ("there", TOPIC), ("gone", OTHER)):
        destinations.remember(topic, 0, b"d" * 16, topic_id)
    destinations.topics_changed({"there": TOPIC}.get)
    assert destinations.of("later", 0, TOPIC) and destinations.of("there", 0, TOPIC)
    assert not destinations.of("gone", 0, OTHER)
    destinations.topics_changed({"later": OTHER}.get)
    assert (len(destinations), destinations.of("later", 0, OTHER)) == (1, b"d" * 16)
    destinations.topics_changed({}.get)
    assert len(destinations) == 0


def test_the_newest_are_kept_when_replicas_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlab.broker.log.destinations.REMEMBERED_MAX", 2)
    destinations = Destinations()
    for number in (0, 1, 0, 2):
        destinations.remember("t", number, b"d" * 16)
    assert [destinations.of("t", number, TOPIC) is not None for number in range(3)] == [True, False, True]


def test_a_crash_while_the_file_is_written_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    for step in range(1, 10):
        destinations = Destinations.open(tmp_path)
        destinations.remember("old", 0, b"d" * 16)
        destinations.forget("new", 0)
        destinations.save()
        destinations.remember("new", 0, b"e" * 16, TOPIC)
        is_done = crashed(step, destinations.save)
        found = Destinations.open(tmp_path)
        assert found.of("old", 0, TOPIC) == b"d" * 16
        assert found.of("new", 0, TOPIC) in (None, b"e" * 16)
        if is_done:
            assert found.of("new", 0, TOPIC) == b"e" * 16
            return
    raise AssertionError("the write has no end")


@pytest.mark.parametrize("content", [b"", b"0\n2\nt 0 AAAAAAAAAAAAAAAAAAAAAQ -\n", b"0\n1\nt 0 x -\n", b"1\n0\n", b"\xff\xfe"])
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    destinations = Destinations.open(tmp_path)
    assert len(destinations) == 0
    destinations.remember("t", 0, b"d" * 16)
    destinations.save()
    assert len(Destinations.open(tmp_path)) == 1


def test_a_file_that_cannot_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destinations = Destinations.open(tmp_path)
    destinations.remember("t", 0, b"d" * 16)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(28))
        destinations.save()
    assert not destinations.is_saved and len(Destinations.open(tmp_path)) == 0
    destinations.save()
    assert destinations.is_saved and len(Destinations.open(tmp_path)) == 1

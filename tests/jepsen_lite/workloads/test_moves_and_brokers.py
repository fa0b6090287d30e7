"""Automata over the log of reassignments and brokers find violations."""

from __future__ import annotations

import msgspec
import pytest

from jepsen_lite.checkers.replayed_image import ReplayedImage
from jepsen_lite.committed_log import CommittedLog
from jepsen_lite.workloads.broker_lives import BrokerLives
from jepsen_lite.workloads.partition_lives import PartitionLives


@pytest.fixture(scope="module")
def moved(played):
    """Return a run of reassignments."""
    _, run, _ = played("reassignments")
    return run


def _changed(run, change):
    """Return the run with each entry replaced by `change(entry)`; None removes it."""
    entries = tuple(entry for entry in map(change, run.log.entries) if entry is not None)
    return msgspec.structs.replace(run, log=CommittedLog(entries, 0, run.log.end))


def _with(entry, **fields):
    return msgspec.structs.replace(entry, record={**entry.record, **fields})


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda entry: _with(entry, isr=[*entry.record["isr"], 99]), "state"),
        (lambda entry: _with(entry, replicas=entry.record["replicas"] * 2), "state"),
        (lambda entry: _with(entry, leader=99), "state"),
    ],
)
def test_the_automaton_of_partitions_sees_what_must_not_be(moved, wrong, kind):
    assert PartitionLives().check(moved).valid is True
    verdict = PartitionLives().check(_changed(moved, lambda entry: wrong(entry) if entry.kind == "Partition" else entry))
    assert verdict.valid is False
    assert verdict.details["violations"][kind]


def test_a_leader_that_is_fenced_is_seen(moved):
    run = _changed(moved, lambda entry: _with(entry, fenced=True) if entry.kind == "BrokerRegistrationChange" else entry)
    verdict = PartitionLives().check(run)
    assert verdict.valid is False
    assert "fenced" in verdict.reason


def test_replicas_that_go_before_others_are_in_sync_are_seen(moved):
    """The log drops replicas without the in-sync replicas that this needs."""

    def too_early(entry):
        record = entry.record
        if entry.kind == "PartitionChange" and record["adding_replicas"] and not record["isr"]:
            return _with(entry, adding_replicas=[], removing_replicas=[], replicas=record["target_replicas"])
        return entry

    verdict = PartitionLives().check(_changed(moved, too_early))
    assert verdict.valid is False


def test_a_replica_that_goes_while_the_move_is_under_way_is_seen(moved):
    """Until the added replicas are in sync, it can be the only complete one."""

    def dropped(entry):
        record = entry.record
        if entry.kind == "PartitionChange" and record["removing_replicas"] and record["replicas"]:
            first = record["removing_replicas"][0]
            left = [replica for replica in record["replicas"] if replica != first]
            return _with(entry, replicas=left, removing_replicas=record["removing_replicas"][1:])
        return entry

    verdict = PartitionLives().check(_changed(moved, dropped))
    assert verdict.details["violations"]["dropped"]


def test_the_image_of_a_spoiled_log_is_judged(moved):
    assert ReplayedImage().check(moved).valid is True
    spoiled = _changed(moved, lambda entry: _with(entry, leader=99) if entry.kind == "Partition" else entry)
    assert ReplayedImage().check(spoiled).valid is False
    lost = _changed(moved, lambda entry: None if entry.kind == "Topic" else entry)
    assert "cannot be replayed" in ReplayedImage().check(lost).details["violations"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda entry: _with(entry, broker_epoch=1) if entry.kind == "RegisterBroker" else entry,
        lambda entry: _with(entry, broker_epoch=3) if entry.kind == "BrokerRegistrationChange" else entry,
    ],
)
def test_epochs_of_brokers_that_are_over_are_seen(moved, wrong):
    assert BrokerLives().check(moved).valid is True
    assert BrokerLives().check(_changed(moved, wrong)).valid is False

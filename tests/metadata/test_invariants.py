"""The invariants themselves: each violated rule is found and named."""

from __future__ import annotations

from typing import Any

import immutables
import msgspec
import pytest

from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, PartitionImage, Provenance
from kraftlab.metadata.invariants import check_image, check_partition, check_step
from kraftlab.metadata.records import (
    RECOVERING,
    AnyRecord,
    BrokerRegistrationChange,
    ClientQuota,
    Config,
    FeatureLevel,
    Partition,
    PartitionChange,
    RegisterBroker,
    Topic,
)

T = b"topic id topic id"[:16]
D1, D2, D3, D4 = (bytes([n]) * 16 for n in (101, 102, 103, 104))
SOUND = PartitionImage((1, 2), (D1, D2), (1, 2), 1)
MOVING = PartitionImage((3, 2, 1), (D3, D2, D1), (1, 2), 1, 0, 1, (3,), (1,), (1, 2), (3, 2))
EMPTIED = PartitionImage((1, 2), (D1, D2), (), -1, elr=(2,), last_known_elr=(1,))


@pytest.mark.parametrize("partition", [SOUND, MOVING, EMPTIED])
def test_sound_partitions_pass(partition: PartitionImage) -> None:
    assert check_partition(partition) == ()


@pytest.mark.parametrize(
    ("sound", "fields", "rule"),
    [
        (SOUND, {"replicas": (1, 1)}, "there are replicas, each once"),
        (SOUND, {"directories": (D1,)}, "each replica has a directory entry"),
        (SOUND, {"isr": (1, 3)}, "the ISR is a set of replicas"),
        (SOUND, {"isr": (2,)}, "the leader is -1 or a member of the ISR"),
        (SOUND, {"leader_recovery_state": RECOVERING}, "while recovering, the ISR has one member"),
        (SOUND, {"elr": (2,)}, "the ELR is a set of replicas outside the ISR"),
        (SOUND, {"isr": (), "leader": -1, "last_known_elr": (3,)}, "the last known leader is a replica"),
        (SOUND, {"last_known_elr": (1,)}, "a partition with a leader has no last known leader"),
        (SOUND, {"leader_epoch": 1}, "the leader epoch is not above the partition epoch"),
        (SOUND, {"original": (1, 2), "target": (1, 2)}, "without a reassignment, no original and target set"),
        (MOVING, {"adding": (1, 3)}, "AR is the sorted target without the original"),
        (MOVING, {"replicas": (1, 2, 3)}, "R is the target and then RR"),
        (MOVING, {"replicas": (3, 2, 3), "removing": (3,)}, "RR is sorted and apart from AR"),
        (MOVING, {"original": (1, 2, 9)}, "the original replicas are still replicas"),
        (MOVING, {"original": ()}, "a reassignment has an original and a target"),
        (MOVING, {"original": (1, 2, 1)}, "the original set has each replica once"),
    ],
)
def test_a_broken_partition_is_named_by_its_rule(sound: PartitionImage, fields: dict[str, Any], rule: str) -> None:
    assert f"violated: {rule}" in check_partition(msgspec.structs.replace(sound, **fields))


def image_of(*records: AnyRecord) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    delta.replay_all(records, 0)
    return delta.apply(Provenance())


CLUSTER: tuple[AnyRecord, ...] = (
    RegisterBroker(0, 1, D1, 10, fenced=False, log_dirs=(D1, D3)),
    RegisterBroker(0, 2, D2, 11, fenced=False, log_dirs=(D2,)),
    Topic(0, "foo", T),
    Partition(0, 0, T, (1, 2), (1, 2), leader=1, directories=(D1, D2)),
)


def test_a_sound_image_passes() -> None:
    assert check_image(image_of(*CLUSTER)) == ()


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        (PartitionChange(0, 0, T, isr=(2,)), "foo-0: violated: the leader is -1 or a member of the ISR"),
        (BrokerRegistrationChange(0, 1, 10, fenced=True), "foo-0: violated: the leader is registered and unfenced"),
        (BrokerRegistrationChange(0, 1, 10, in_controlled_shutdown=True), "foo-0: violated: the leader is not shutting down"),
        (BrokerRegistrationChange(0, 1, 10, log_dirs=(D3, D1)), "broker 1: violated: directories are sorted"),
        (BrokerRegistrationChange(0, 1, 10, log_dirs=(D2,)), "broker 2: violated: no two brokers have the same directory"),
        (RegisterBroker(0, 3, D4, 11), "broker 3: violated: no two brokers have the same epoch"),
    ],
)
def test_a_broken_image_is_named(record: AnyRecord, rule: str) -> None:
    assert any(line.startswith(rule) for line in check_image(image_of(*CLUSTER, record)))


ELR_ON = (FeatureLevel(0, "eligible.leader.replicas.version", 1), Config(0, 4, "", "min.insync.replicas", "1"))


@pytest.mark.parametrize(
    ("records", "rule"),
    [
        (ELR_ON[:1], "violated: with eligible leader replicas the cluster has a min.insync.replicas"),
        ((*ELR_ON, Config(0, 4, "1", "min.insync.replicas", "1")), "violated: with eligible leader replicas the cluster has"),
        (
            (ClientQuota(0, (("user", "u"), ("client-id", "c")), "k", 1.0),),
            "(('user', 'u'), ('client-id', 'c')): violated: an entity's",
        ),
        ((ClientQuota(0, (("user", "u"),), "k", 0.0),), "(('user', 'u'),): violated: quotas are above 0"),
    ],
)
def test_configs_and_quotas_that_cannot_be_are_named(records: tuple[AnyRecord, ...], rule: str) -> None:
    assert check_image(image_of(*ELR_ON)) == ()
    assert any(line.startswith(rule) for line in check_image(image_of(*records)))


@pytest.mark.parametrize(("of_topic", "of_cluster", "is_sound"), [("1", "2", False), ("2", "1", True), (None, "2", True)])
def test_eligible_leader_replicas_are_of_a_small_isr(of_topic: str | None, of_cluster: str, is_sound: bool) -> None:
    image = image_of(
        FeatureLevel(0, "eligible.leader.replicas.version", 1),
        *CLUSTER,
        Config(0, 4, "", "min.insync.replicas", of_cluster),
        Config(0, 2, "foo", "min.insync.replicas", of_topic),
        PartitionChange(0, 0, T, isr=(1,), eligible_leader_replicas=(2,)),
    )
    assert (check_image(image) == ()) == is_sound


def test_a_listing_that_differs_from_the_partitions_is_found() -> None:
    image = image_of(*CLUSTER)
    listed = msgspec.structs.replace(image.topics, reassigning=immutables.Map({T: (0,), D4: (1,)}))
    lines = check_image(msgspec.structs.replace(image, topics=listed))
    assert lines == (
        "foo: violated: the listing has exactly the partitions being reassigned",
        "aGhoaGhoaGhoaGhoaGhoaA: violated: a topic of the listing exists",
    )


def test_a_step_must_move_epochs_as_the_record_says() -> None:
    record = PartitionChange(0, 0, T, leader=2)
    before, after = image_of(*CLUSTER), image_of(*CLUSTER, record)
    assert check_step(before, after, record) == ()
    assert any("partition epoch rises" in line for line in check_step(before, before, record))
    assert any("leader epoch rises" in line for line in check_step(before, after, PartitionChange(0, 0, T)))


@pytest.mark.parametrize("level", [0, 1])
def test_an_isr_becomes_empty_only_with_eligible_leader_replicas(level: int) -> None:
    features = immutables.Map({"eligible.leader.replicas.version": level} if level else {})
    record = PartitionChange(0, 0, T, isr=(), leader=-1)
    before = msgspec.structs.replace(image_of(*CLUSTER), features=features)
    broken = check_step(before, image_of(*CLUSTER, record), record)
    assert any("the ISR does not become empty" in line for line in broken) == (level == 0)


@pytest.mark.parametrize(
    ("record", "is_sound"),
    [
        (RegisterBroker(0, 1, D4, 20), True),
        (RegisterBroker(0, 1, D4, 10), False),
        (RegisterBroker(0, 1, D1, 10), True),
        (RegisterBroker(0, 1, D1, 20), False),
        (RegisterBroker(0, 3, D4, 20), True),
        (RegisterBroker(0, 3, D4, 11), False),
    ],
)
def test_broker_epochs_rise(record: RegisterBroker, is_sound: bool) -> None:
    assert (check_step(image_of(*CLUSTER), image_of(*CLUSTER, record), record) == ()) == is_sound

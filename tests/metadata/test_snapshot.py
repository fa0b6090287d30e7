"""The canonical form of an image."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.moves import PlannedPartition
from kraftlab.metadata.records import (
    AbortTransaction,
    AnyRecord,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    MovePlan,
    Partition,
    Topic,
)
from kraftlab.metadata.snapshot import CHUNK_BYTES_MAX, ImageSnapshot, image_digest, image_from, image_records
from kraftlab.quorum.core.batch import MAX_BATCH_BYTES


def replay(records: list[AnyRecord], provenance: Provenance = EMPTY.provenance) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    delta.replay_all(records, 0)
    return delta.apply(provenance)


def test_features_come_first(history: Callable[[int, int], list[AnyRecord]]) -> None:
    records = list(image_records(replay(history(1, 100))))
    are_features = [isinstance(record, FeatureLevel) for record in records]
    assert are_features[0]
    assert are_features == sorted(are_features, reverse=True)


def test_records_are_in_the_order_of_names_and_not_of_hashes() -> None:
    names = [f"topic-{n:02}" for n in range(40)]
    ids = {name: bytes([1 + n]) * 16 for n, name in enumerate(reversed(names))}
    made: list[AnyRecord] = [Topic(0, name, ids[name]) for name in reversed(names)]
    made += [Config(0, 2, "topic-00", name, "1") for name in reversed(names)]
    assert list(image_records(replay(made))) == [
        *(Topic(0, name, ids[name]) for name in names),
        *(Config(0, 2, "topic-00", name, "1") for name in names),
    ]


@given(st.permutations([bytes([n]) * 16 for n in range(1, 9)]), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_digest_does_not_depend_on_the_order_in_which_things_were_made(ids: list[bytes], source: random.Random) -> None:
    partitions: list[AnyRecord] = [Partition(0, n, topic_id, (1,), (1,)) for topic_id in ids for n in range(3)]
    configs: list[AnyRecord] = [Config(0, 2, f"t{topic_id[0]}", key, "1") for topic_id in ids for key in "ab"]
    source.shuffle(partitions)
    source.shuffle(configs)
    digest = image_digest(replay([Topic(0, f"t{topic_id[0]}", topic_id) for topic_id in ids] + partitions + configs))
    ids = sorted(ids)
    straight: list[AnyRecord] = [Topic(0, f"t{topic_id[0]}", topic_id) for topic_id in ids]
    straight += [Partition(0, n, topic_id, (1,), (1,)) for topic_id in ids for n in range(3)]
    straight += [Config(0, 2, f"t{topic_id[0]}", key, "1") for topic_id in ids for key in "ab"]
    assert image_digest(replay(straight)) == digest


def test_the_digest_covers_the_state_but_not_its_position() -> None:
    one = replay([Config(0, 4, "", "x", "1")])
    assert image_digest(one) != image_digest(replay([Config(0, 4, "", "x", "2")])) != image_digest(EMPTY)
    assert image_digest(one) == image_digest(replay([Config(0, 4, "", "x", "1")], Provenance(500, 3, 1_000)))
    assert len(image_digest(EMPTY)) == 32


def test_an_image_comes_back_from_the_batches_of_its_snapshot(history: Callable[[int, int], list[AnyRecord]]) -> None:
    image = replay(history(3, 3_000))
    batches = list(ImageSnapshot(image).batches())
    assert sum(count for _, count in batches) == len(list(image_records(image)))
    again = image_from(body for body, _ in batches)
    assert again == image
    assert list(ImageSnapshot(again).batches()) == batches


def test_a_snapshot_of_large_records_has_small_batches() -> None:
    image = replay(
        [Config(0, 4, "", f"key{n:03}", "x" * 30_000) for n in range(200)] + [Config(0, 4, "1", "huge", "x" * 3_000_000)]
    )
    batches = list(ImageSnapshot(image).batches())
    assert [len(body) > CHUNK_BYTES_MAX for body, _ in batches] == [False] * (len(batches) - 1) + [True]
    assert batches[-1][1] == 1
    assert image_from(body for body, _ in batches) == image


def test_a_plan_of_many_requests_has_room_in_a_snapshot() -> None:
    """Each request fits a batch of the log; all their partitions together would not."""
    topic_id, directories = bytes([1]) * 16, tuple(bytes([n]) * 16 for n in (7, 8, 9))

    def request(first: int) -> MovePlan:
        numbers = range(first, first + 10_000)
        entries = tuple(PlannedPartition(topic_id, n, "t" * 249, (1, 2, 3), directories, (4, 5, 6)) for n in numbers)
        return MovePlan(0, "p", 1, 2, "User:a", "why", entries)

    image = replay([request(first) for first in range(0, 30_000, 10_000)])
    batches = list(ImageSnapshot(image).batches())
    assert sum(len(body) for body, _ in batches) > MAX_BATCH_BYTES
    assert max(len(body) for body, _ in batches) <= CHUNK_BYTES_MAX
    assert image_from(body for body, _ in batches) == image


def test_batches_that_make_no_image_are_refused_as_value_errors() -> None:
    body = codec.encode([Partition(0, 0, bytes([1]) * 16, (1,), (1,))])[0]
    for bodies in ([body], [b"\x91\x92\xcd\x03\xe7\x00"], [b"nonsense"]):
        with pytest.raises(ValueError):
            image_from(bodies)


@pytest.mark.parametrize("marker", [BeginTransaction(0), EndTransaction(0), AbortTransaction(0)])
def test_a_transaction_has_no_place_in_a_snapshot(marker: AnyRecord) -> None:
    body, _ = codec.encode([Config(0, 4, "", "k", "v"), marker])
    with pytest.raises(ValueError, match="no snapshot is taken while a transaction is open"):
        image_from([body])

"""An image as records, and its digest: the canonical form (KIP-630).

Equal images give equal bytes, however they were reached. The order of the records is: features (a reader must know the levels
first), brokers and controllers by id, topics by name with their partitions by number, configs by resource and key, quotas by
entity, the next producer id, ACLs, SCRAM credentials by user, answers to requests by client (the least recent first), moves
with their queue and plans. Replaying them on the empty image gives an equal image. An open transaction is not included; take
no snapshot then.

Records are made one after the other and encoded in portions. So a snapshot of any size needs little memory beside the image,
and no portion occupies the interpreter for long: a worker thread writes it while the event loop goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

from . import codec
from .acls import acl_records
from .delta import TRANSACTION_MARKERS, MetadataDelta
from .image import EMPTY, BrokerImage, MetadataImage
from .moves_delta import move_records
from .partitions import partition_record
from .quotas import quota_records
from .records import AnyRecord, Config, FeatureLevel, ProducerIds, RegisterBroker, RegisterController, Topic
from .replay_error import COMPARE_LOGS, ReplayError
from .requests import request_records
from .scram import scram_records

NO_BROKER = -1
RECORDS_PER_CHUNK = 1024
CHUNK_BYTES_MAX = 1024 * 1024
"""Largest batch of a snapshot, unless a single record is larger."""


class ImageSnapshot:
    """An image to be written as a snapshot: the state machines' `FrozenState`."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """(MessagePack array, record count) of each batch, in the canonical order."""
        return _chunks(self._image)


def image_from(bodies: Iterable[bytes]) -> MetadataImage:
    """Return the image of a snapshot's data batches, without its position in the log.

    UnreadableRecords or ReplayError, both ValueErrors, for batches that do not make an image.
    """
    delta = MetadataDelta(EMPTY)
    offset = 0
    for body in bodies:
        records = codec.decode(body, offset)
        marker = next((record for record in records if isinstance(record, TRANSACTION_MARKERS)), None)
        if marker is not None:
            raise ReplayError(
                f"a snapshot holds {marker!r}, but no snapshot is taken while a transaction is open; {COMPARE_LOGS}"
            )
        delta.replay_all(records, offset)
        offset += len(records)
    return delta.apply(EMPTY.provenance)


def image_records(image: MetadataImage) -> Iterator[AnyRecord]:
    """Records that make `image` from nothing."""
    for name, level in sorted(image.features.items()):
        yield FeatureLevel(0, name, level)
    for _, broker in sorted(image.cluster.brokers.items()):
        yield _broker_record(broker)
    for _, controller in sorted(image.cluster.controllers.items()):
        yield RegisterController(
            0, controller.controller_id, controller.incarnation_id, controller.listeners, controller.features
        )
    for name, topic_id in sorted(image.topics.by_name.items()):
        yield Topic(0, name, topic_id)
        partitions = image.topics.by_id[topic_id].partitions
        for number in sorted(partitions):
            yield partition_record(topic_id, number, partitions[number])
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield Config(0, resource_type, resource_name, name, value)
    yield from quota_records(image.quotas)
    if image.next_producer_id:
        yield ProducerIds(0, NO_BROKER, NO_BROKER, image.next_producer_id)
    yield from acl_records(image.acls)
    yield from scram_records(image.scram)
    yield from request_records(image.requests)
    yield from move_records(image.moves)


def image_digest(image: MetadataImage) -> bytes:
    """SHA-256 over the canonical form. The image's position in the log is not included."""
    digest = hashlib.sha256()
    for body, _ in _chunks(image):
        digest.update(body)
    return digest.digest()


def _chunks(image: MetadataImage) -> Iterator[tuple[bytes, int]]:
    """The canonical form in encoded portions."""
    records = image_records(image)
    while chunk := list(islice(records, RECORDS_PER_CHUNK)):
        yield from _encoded(chunk)


def _encoded(records: list[AnyRecord]) -> Iterator[tuple[bytes, int]]:
    body, count = codec.encode(records)
    if len(body) <= CHUNK_BYTES_MAX or count == 1:
        yield body, count
    else:
        yield from _encoded(records[: count // 2])
        yield from _encoded(records[count // 2 :])


def _broker_record(broker: BrokerImage) -> RegisterBroker:
    return RegisterBroker(
        0,
        broker.broker_id,
        broker.incarnation_id,
        broker.epoch,
        broker.listeners,
        broker.features,
        broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.log_dirs,
        broker.registration_offset,
        broker.cordoned_log_dirs,
    )

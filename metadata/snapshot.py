"""An image as records, and its digest: the canonical form (KIP-630).

The records are ordered so that equal images give equal bytes whatever way they were reached: features first (a reader must know
the levels before anything else), then brokers and controllers by id, topics by name with their partitions by number, configs by
resource and key. Replaying them on the empty image gives an equal image. An open transaction is not part of it: take no
snapshot then.
"""

from __future__ import annotations

import hashlib

from . import codec
from .image import BrokerImage, MetadataImage
from .partitions import partition_record
from .records import AnyRecord, Config, FeatureLevel, RegisterBroker, RegisterController, Topic

RECORDS_PER_CHUNK = 1024


def image_records(image: MetadataImage) -> list[AnyRecord]:
    """The records that make `image` from nothing."""
    records: list[AnyRecord] = [FeatureLevel(0, name, level) for name, level in sorted(image.features.items())]
    records.extend(_broker_record(broker) for _, broker in sorted(image.cluster.brokers.items()))
    records.extend(
        RegisterController(0, controller.controller_id, controller.incarnation_id, controller.listeners, controller.features)
        for _, controller in sorted(image.cluster.controllers.items())
    )
    for name, topic_id in sorted(image.topics.by_name.items()):
        records.append(Topic(0, name, topic_id))
        records.extend(
            partition_record(topic_id, number, partition)
            for number, partition in sorted(image.topics.by_id[topic_id].partitions.items())
        )
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        records.extend(Config(0, resource_type, resource_name, name, value) for name, value in sorted(values.items()))
    return records


def image_digest(image: MetadataImage) -> bytes:
    """SHA-256 over the canonical form. Where the image stands in the log is not part of it."""
    digest = hashlib.sha256()
    records = image_records(image)
    for start in range(0, len(records), RECORDS_PER_CHUNK):
        digest.update(codec.encode(records[start : start + RECORDS_PER_CHUNK])[0])
    return digest.digest()


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
    )

"""Digests of the image that a metadata log on disk gives, whether it goes back to 0, starts at a snapshot, or is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import Topic
from kraftlab.metadata.snapshot import ImageSnapshot, image_digest
from kraftlab.node.metadata_digests import MetadataDigests
from kraftlab.quorum.core import OffsetAndEpoch, batch
from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.driver.disk_threads import DiskThreads
from kraftlab.quorum.storage import MetadataStore, RealFileSystem

TOPICS = 30
EPOCH = 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    """The store in `tmp_path`, opened."""
    opened = MetadataStore.open(RealFileSystem(), str(tmp_path), "test", bytes(16), segment_bytes=5000, preallocate_bytes=8192)
    yield opened
    opened.close()


def fill(store: MetadataStore) -> list[MetadataImage]:
    """One topic a batch; the images at the offsets 0, 1, ..."""
    images = [EMPTY]
    for offset in range(TOPICS):
        record = Topic(0, f"topic-{offset}", bytes([offset]) * 16)
        body, count = codec.encode([record])
        data, _ = batch.encode(
            body,
            base_offset=offset,
            epoch=EPOCH,
            record_count=count,
            append_time_ms=offset,
            high_watermark=offset,
            previous_crc=store.log_view().last_crc,
        )
        store.log.append(offset, offset + 1, data)
        delta = MetadataDelta(images[-1])
        delta.replay_all([record], offset)
        images.append(delta.apply(Provenance(offset + 1, EPOCH, offset)))
    store.log.flush()
    return images


def take_snapshot(store: MetadataStore, image: MetadataImage) -> OffsetAndEpoch:
    at = OffsetAndEpoch(image.provenance.offset, EPOCH)
    writer = store.snapshots.writer(at, [SnapshotHeader(0, "test", 0, store.log_view().crc_at(at.offset), at.offset - 1)])
    for body, count in ImageSnapshot(image).batches():
        writer.append(body, count)
    writer.finish()
    return at


def damage(directory: Path, record: bytes) -> None:
    """In the first segment."""
    segment = min(directory.glob("*/*.log"))
    data = bytearray(segment.read_bytes())
    data[data.index(record)] ^= 1
    segment.write_bytes(data)


def digests_of(directory: Path) -> MetadataDigests:
    """Return the digests of a node that keeps no image in memory."""
    return MetadataDigests(3000, str(directory), lambda: TOPICS, lambda offset: None, DiskThreads())


async def test_an_image_that_is_not_kept_is_made_from_the_disk(store: MetadataStore, tmp_path: Path) -> None:
    images = fill(store)
    for offset in (1, 9, TOPICS):
        found = await digests_of(tmp_path).describe(pb.DescribeMetadataRequest(at_offset=offset, reread_log=True))
        assert (found.offset, found.image_digest) == (offset, image_digest(images[offset]))
        assert (found.reread_offset, found.reread_digest) == (offset, image_digest(images[offset]))


async def test_an_image_that_the_disk_does_not_give_any_more_is_refused_instead_of_an_older_one(
    store: MetadataStore, tmp_path: Path, autojump_clock: object
) -> None:
    images = fill(store)
    damage(tmp_path, b"topic-9")
    whole = await digests_of(tmp_path).describe(pb.DescribeMetadataRequest(at_offset=9))
    assert whole.image_digest == image_digest(images[9])
    with pytest.raises(ApiError, match=r"gives the image of 9, not of 10: .* crc") as caught:
        await digests_of(tmp_path).describe(pb.DescribeMetadataRequest(at_offset=10))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_damage_before_a_snapshot_does_not_keep_the_log_from_being_read_on(store: MetadataStore, tmp_path: Path) -> None:
    images = fill(store)
    take_snapshot(store, images[20])
    damage(tmp_path, b"topic-9")
    found = await digests_of(tmp_path).describe(pb.DescribeMetadataRequest(reread_log=True))
    assert (found.reread_offset, found.reread_digest) == (TOPICS, image_digest(images[TOPICS]))


async def test_an_offset_before_the_beginning_of_the_log_is_refused(store: MetadataStore, tmp_path: Path) -> None:
    images = fill(store)
    store.log.clean(take_snapshot(store, images[20]))
    store.log.flush()
    with pytest.raises(ApiError, match="oldest snapshot ends at offset 20"):
        await digests_of(tmp_path).describe(pb.DescribeMetadataRequest(at_offset=19))

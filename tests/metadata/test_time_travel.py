"""Any offset of a random history, read from a directory, gives the image of replaying the records from the beginning."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import AnyRecord
from kraftlab.metadata.snapshot import ImageSnapshot
from kraftlab.node.history import History, Moment, Step
from kraftlab.quorum.core import OffsetAndEpoch, batch
from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.storage import MetadataStore, RealFileSystem
from kraftlab.quorum.storage.survey import metadata_partition


def written(directory: str, records: list[AnyRecord], chance: random.Random) -> list[MetadataImage]:
    """Write the records in batches of random sizes, with a snapshot now and then. Return the image after each batch."""
    store = MetadataStore.open(RealFileSystem(), directory, "test", bytes(16), segment_bytes=6000, preallocate_bytes=8192)
    images, offset = [EMPTY], 0
    while offset < len(records):
        part = records[offset : offset + chance.randint(1, 12)]
        body, count = codec.encode(part)
        previous = store.log_view().last_crc
        data, crc = batch.encode(
            body,
            base_offset=offset,
            epoch=1,
            record_count=count,
            append_time_ms=offset,
            high_watermark=offset,
            previous_crc=previous,
        )
        store.log.append(offset, offset + count, data)
        delta = MetadataDelta(images[-1])
        delta.replay_all(part, offset)
        offset += count
        images.append(delta.apply(Provenance(offset, 1, offset - count)))
        if images[-1].transaction is None and chance.random() < 0.2:
            store.log.flush()
            header = SnapshotHeader(0, "test", 0, crc, offset - count)
            writer = store.snapshots.writer(OffsetAndEpoch(offset, 1), [header])
            for chunk, size in ImageSnapshot(images[-1]).batches():
                writer.append(chunk, size)
            writer.finish()
    store.log.flush()
    store.close()
    return images


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_offset_read_from_a_directory_equals_replay(history: Callable[[int, int], list[AnyRecord]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        records = history(seed, 120)
        images = written(directory, records, random.Random(seed))
        past = History(metadata_partition(directory))
        for offset in range(0, len(records) + 1, 3):
            expected = [image for image in images if image.provenance.offset <= offset][-1]
            found = past.at(Moment(offset=offset))
            assert (found.stopped, found.notes) == (None, ())
            assert found.image == expected
        steps = list(past.steps(Moment(offset=0), Moment()))
        assert [step.image for step in steps if isinstance(step, Step)] == images[1:]

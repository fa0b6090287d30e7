"""Images and records of the past: the same as replaying from the beginning, over whole and broken directories."""

from __future__ import annotations

import errno
import os
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import AnyRecord, Config, RequestOutcome, Topic, UserScramCredential
from kraftlab.metadata.snapshot import ImageSnapshot, image_digest, image_from, image_records
from kraftlab.node import time_travel
from kraftlab.node.history import NEWEST, History, Moment, NoHistory, UnreadableSnapshot, read_snapshot
from kraftlab.node.time_travel import TimeTravel, masked
from kraftlab.quorum.core import OffsetAndEpoch, batch
from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.driver.disk_threads import DiskThreads
from kraftlab.quorum.storage import MetadataStore, RealFileSystem, StorageFull
from kraftlab.quorum.storage.committed_mark import store_committed
from kraftlab.quorum.storage.file_system import RealFile, RealFileReader
from kraftlab.quorum.storage.survey import metadata_partition, segments_in, snapshots_in

BATCHES = 30


class Lab(NamedTuple):
    """A log of `BATCHES` batches of two records each, batch N appended at 1000 * N ms; `images[n]` after n batches."""

    partition: str
    images: list[MetadataImage]
    records: list[list[AnyRecord]]

    @property
    def history(self) -> History:
        return History(self.partition)

    def damage(self, path: str, position: int) -> None:
        data = bytearray(Path(path).read_bytes())
        data[position] ^= 0x10
        Path(path).write_bytes(data)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return written(tmp_path)


def written(tmp_path: Path) -> Lab:
    """Write several segments, and snapshots after 10 and 20 batches. Nothing is cleaned."""
    store = MetadataStore.open(RealFileSystem(), str(tmp_path), "test", bytes(16), segment_bytes=5000, preallocate_bytes=8192)
    images, lists = [EMPTY], []
    for number in range(BATCHES):
        config = Config(0, 4, "", "min.insync.replicas", str(number))
        records: list[AnyRecord] = [Topic(0, f"t{number}", bytes([number]) * 16), config]
        body, count = codec.encode(records)
        base = 2 * number
        data, _ = batch.encode(
            body,
            base_offset=base,
            epoch=1,
            record_count=count,
            append_time_ms=1000 * number,
            high_watermark=base,
            previous_crc=store.log_view().last_crc,
        )
        store.log.append(base, base + 2, data)
        delta = MetadataDelta(images[-1])
        delta.replay_all(records, base)
        images.append(delta.apply(Provenance(base + 2, 1, 1000 * number)))
        lists.append(records)
    store.log.flush()
    for number in (10, 20):
        header = SnapshotHeader(0, "test", 0, store.log_view().crc_at(2 * number), 1000 * (number - 1))
        writer = store.snapshots.writer(OffsetAndEpoch(2 * number, 1), [header])
        for body, count in ImageSnapshot(images[number]).batches():
            writer.append(body, count)
        writer.finish()
    store.close()
    return Lab(metadata_partition(str(tmp_path)), images, lists)


def test_the_image_of_any_offset_equals_a_replay_from_the_beginning(lab: Lab) -> None:
    for offset in range(2 * BATCHES + 1):
        found = lab.history.at(Moment(offset=offset))
        assert found == (lab.images[offset // 2], None, ())
    assert lab.history.at(NEWEST).image == lab.images[-1]
    assert lab.history.at(Moment(offset=999)).image == lab.images[-1]


def test_a_time_means_everything_that_was_appended_until_then(lab: Lab) -> None:
    for time_ms in (0, 999, 1000, 9_500, 10_000, 25_001, 10**9):
        assert lab.history.at(Moment(time_ms=time_ms)).image == lab.images[min(time_ms // 1000 + 1, BATCHES)]


def test_the_records_between_two_moments_come_batch_by_batch(lab: Lab) -> None:
    steps = list(lab.history.steps(Moment(offset=18), Moment(offset=24)))
    assert [list(step.records) for step in steps if not isinstance(step, str)] == lab.records[9:12]
    assert [step.image for step in steps if not isinstance(step, str)] == lab.images[10:13]


def test_reading_on_from_remembered_places_gives_the_same_images_and_records(lab: Lab) -> None:
    history, ends = History(lab.partition, places=3), range(0, 2 * BATCHES + 1, 5)
    for start, end in sorted(combinations_with_replacement(ends, 2), key=lambda pair: (7 * pair[0] + 11 * pair[1]) % 61):
        moments = Moment(offset=start), Moment(offset=end)
        assert list(history.steps(*moments)) == list(lab.history.steps(*moments))
        assert history.at(moments[1]) == (lab.images[end // 2], None, ())


def test_reading_on_reads_no_snapshot_and_no_batch_before_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(lab.partition, places=1)
    first = list(history.steps(Moment(offset=50), Moment(offset=54)))
    decoded: list[int] = []
    monkeypatch.setattr(codec, "decode", lambda body, base, count: decoded.append(base) or [])
    list(history.steps(Moment(offset=54), Moment(offset=60)))
    assert (len(first), decoded) == (2, [54, 56, 58])


def test_a_remembered_place_before_the_log_begins_is_left_for_a_snapshot(lab: Lab) -> None:
    history = History(lab.partition, places=1)
    history.at(Moment(offset=6))
    for _, path in [each for each in segments_in(lab.partition) if each[0] < 20]:
        Path(path).unlink()
    assert history.at(Moment(offset=50)).image == lab.images[25]
    with pytest.raises(NoHistory, match="oldest snapshot ends at offset 20"):
        history.at(Moment(offset=10))


def test_reading_changes_nothing(lab: Lab) -> None:
    before = {path: path.read_bytes() for path in Path(lab.partition).iterdir()}
    lab.history.at(NEWEST)
    lab.history.known_committed()
    assert {path: path.read_bytes() for path in Path(lab.partition).iterdir()} == before


def test_the_mark_of_a_clean_stop_is_committed(lab: Lab) -> None:
    before = lab.history.known_committed()
    end = lab.images[-1].provenance.offset
    assert before < end
    store_committed(RealFileSystem(), lab.partition, end)
    assert lab.history.known_committed() == end
    mark = Path(lab.partition) / "committed"
    mark.write_bytes(mark.read_bytes().replace(b"offset", b"offset "))
    assert lab.history.known_committed() == before, "a mark that does not hold says nothing"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_files_that_can_only_be_read_are_enough(lab: Lab, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A copy on a read-only disk, or what belongs to another user."""
    really_open = os.open

    def refuse_writers(path: str, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(number, os.strerror(number), path)
        return really_open(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", refuse_writers)
    assert lab.history.at(NEWEST) == (lab.images[-1], None, ())


def test_a_snapshot_that_can_not_be_opened_is_named_like_one_that_does_not_hold(lab: Lab) -> None:
    newest = snapshots_in(lab.partition)[0][1]

    class Short(RealFileReader):
        def open(self, path: str) -> RealFile:
            if path == newest:
                raise StorageFull(f"cannot open {path}: too many open files")
            return super().open(path)

    found = History(lab.partition, Short()).at(NEWEST)
    assert (found.image, found.notes) == (lab.images[-1], (f"cannot open {newest}: too many open files",))


def test_the_place_where_a_log_breaks_off_is_named_and_the_rest_before_it_is_read(lab: Lab) -> None:
    _, path = segments_in(lab.partition)[-1]
    lab.damage(path, 4096 + 60)
    found = lab.history.at(NEWEST)
    assert found.stopped is not None
    assert f"{path} position 4096: " in found.stopped
    assert "crc" in found.stopped
    assert found.image in lab.images
    assert f"offset {found.image.provenance.offset} and what follows it is not readable" in found.stopped


def test_damage_before_a_snapshot_hides_only_the_records_between(lab: Lab) -> None:
    base, path = segments_in(lab.partition)[0]
    assert base == 0
    lab.damage(path, 4096 + 60)
    with pytest.raises(NoHistory, match=r"position 4096: .* Its oldest snapshot ends at offset 20; ask for that or a later one"):
        lab.history.at(Moment(offset=18))
    for offset in range(20, 2 * BATCHES + 1):
        assert lab.history.at(Moment(offset=offset)).image == lab.images[offset // 2]


def test_history_begins_at_the_oldest_snapshot_once_the_log_before_it_is_deleted(lab: Lab) -> None:
    assert lab.history.first() == OffsetAndEpoch(0, 0)
    Path(segments_in(lab.partition)[0][1]).unlink()
    assert lab.history.first() == OffsetAndEpoch(20, 1)


def test_a_damaged_snapshot_is_named_and_an_older_one_is_used(lab: Lab) -> None:
    (_, newest), (_, older) = snapshots_in(lab.partition)
    lab.damage(newest, 200)
    found = lab.history.at(NEWEST)
    assert (found.image, found.stopped) == (lab.images[-1], None)
    assert newest in found.notes[0]
    lab.damage(older, 200)
    assert lab.history.at(NEWEST).image == lab.images[-1]
    with pytest.raises(UnreadableSnapshot, match="is no valid snapshot"):
        read_snapshot(older)


def test_a_log_that_was_cleaned_says_how_far_back_it_goes(lab: Lab) -> None:
    for base, path in segments_in(lab.partition):
        if base < 20:
            Path(path).unlink()
    first = segments_in(lab.partition)[0][0]
    with pytest.raises(NoHistory, match=f"the log starts at offset {first}.*oldest snapshot ends at offset 20"):
        lab.history.at(Moment(offset=10))


def test_a_missing_segment_is_a_hole_that_is_named(lab: Lab) -> None:
    for _, path in snapshots_in(lab.partition):
        Path(path).unlink()
    segments = segments_in(lab.partition)
    Path(segments[-2][1]).unlink()
    found = lab.history.at(NEWEST)
    assert found.stopped is not None
    assert f"{Path(segments[-1][1]).name} does not follow it" in found.stopped
    assert found.image.provenance.offset == segments[-2][0]


def test_the_stamps_of_leaders_are_committed(lab: Lab) -> None:
    assert lab.history.known_committed() == 2 * (BATCHES - 1)


def test_a_snapshot_alone_gives_its_image(lab: Lab) -> None:
    (_, newest), _ = snapshots_in(lab.partition)
    found = read_snapshot(newest)
    assert found is not None
    assert found[0] == lab.images[20]
    with pytest.raises(UnreadableSnapshot, match="is not named like a snapshot"):
        read_snapshot(segments_in(lab.partition)[0][1])


async def pages(travel: TimeTravel, request: pb.DescribeImageRequest) -> tuple[pb.DescribeImageResponse, list[bytes], int]:
    """The first answer, all bodies, and how many answers it took."""
    first = answer = await travel.describe_image(request)
    bodies, count = list(first.bodies), 1
    while answer.next_record:
        answer = await travel.describe_image(pb.DescribeImageRequest(offset=first.offset, first_record=answer.next_record))
        bodies += answer.bodies
        count += 1
    return first, bodies, count


def travel_of(lab: Lab, newest: int = 2 * BATCHES) -> TimeTravel:
    return TimeTravel(1, str(Path(lab.partition).parent), lambda: newest, DiskThreads())


async def test_an_image_is_described_in_parts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_travel, "ANSWER_BYTES", 200)
    monkeypatch.setattr(time_travel, "RECORDS_PER_BODY", 4)
    for request, number in (
        (pb.DescribeImageRequest(), BATCHES),
        (pb.DescribeImageRequest(offset=31), 15),
        (pb.DescribeImageRequest(time_ms=19_500), 20),
    ):
        first, bodies, count = await pages(travel_of(lab), request)
        assert (first.offset, first.append_time_ms) == (2 * number, 1000 * (number - 1))
        assert image_digest(image_from(bodies)) == image_digest(lab.images[number])
        assert count > 1


async def test_the_records_between_offsets_are_listed_in_parts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_travel, "ANSWER_BYTES", 10)
    answer = await travel_of(lab).list_records(pb.ListMetadataRecordsRequest(from_offset=10, to_offset=14))
    assert answer.next_offset == 12
    assert codec.decode(answer.batches[0].body) == lab.records[5]
    answer = await travel_of(lab).list_records(pb.ListMetadataRecordsRequest(from_offset=12, to_offset=14))
    assert answer.next_offset == 14


async def test_a_node_that_cleans_its_log_while_the_records_are_read_looks_again(lab: Lab) -> None:
    class Cleaned(RealFileSystem):
        """Its oldest snapshot and the segments below the newer one go just when they are to be read."""

        def read(self, path: str) -> bytes:
            newer = snapshots_in(lab.partition)[0][0].offset
            bases = [base for base, _ in segments_in(lab.partition)]
            start = max(base for base in bases if base <= newer)
            for base, old in segments_in(lab.partition):
                if base < start:
                    Path(old).unlink()
            for position, old in snapshots_in(lab.partition):
                if position.offset < newer:
                    Path(old).unlink()
            return super().read(path)

    travel = TimeTravel(1, str(Path(lab.partition).parent), lambda: 2 * BATCHES, DiskThreads(), Cleaned())
    with pytest.raises(ApiError, match="ask for that or a later one") as refused:
        await travel.list_records(pb.ListMetadataRecordsRequest(from_offset=10, to_offset=14))
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_unpublished_metadata_is_refused(lab: Lab) -> None:
    travel = travel_of(lab, newest=40)
    first, _, _ = await pages(travel, pb.DescribeImageRequest(time_ms=10**9))
    assert first.offset == 40
    for wrong in (pb.DescribeImageRequest(offset=41), pb.DescribeImageRequest(offset=-1)):
        with pytest.raises(ApiError, match="has metadata up to offset 40"):
            await travel.describe_image(wrong)
    with pytest.raises(ApiError, match="give one of the two"):
        await travel.describe_image(pb.DescribeImageRequest(offset=1, time_ms=1))
    with pytest.raises(ApiError, match="swap the two"):
        await travel.list_records(pb.ListMetadataRecordsRequest(from_offset=20, to_offset=10))


async def test_a_node_with_a_broken_log_describes_no_older_image_for_a_time(lab: Lab) -> None:
    _, path = segments_in(lab.partition)[-1]
    lab.damage(path, 4096 + 60)
    reached = lab.history.at(NEWEST).image.provenance
    first, _, _ = await pages(travel_of(lab), pb.DescribeImageRequest(time_ms=reached.append_time_ms - 1))
    assert first.offset == reached.offset - 2
    for time_ms in (reached.append_time_ms, 10**9):
        with pytest.raises(ApiError, match="is not readable") as refused:
            await travel_of(lab).describe_image(pb.DescribeImageRequest(time_ms=time_ms))
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_image_that_the_disk_does_not_hold_yet_is_refused_instead_of_an_older_one(lab: Lab) -> None:
    end_offset = 2 * BATCHES
    travel = travel_of(lab, newest=end_offset + 4)
    for offset in (end_offset + 2, end_offset + 4):
        with pytest.raises(ApiError, match=f"its disk holds the log up to offset {end_offset} so far") as refused:
            await travel.describe_image(pb.DescribeImageRequest(offset=offset))
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    first, _, _ = await pages(travel, pb.DescribeImageRequest())
    assert first.offset == end_offset, "the newest that it can tell"


async def test_a_node_leaves_out_no_records_that_its_disk_does_not_hold_yet(lab: Lab) -> None:
    """It may have published what other voters' disks hold, and its own is still to write."""
    end_offset = 2 * BATCHES
    travel = travel_of(lab, newest=end_offset + 4)
    for from_offset in (end_offset - 4, end_offset):
        with pytest.raises(ApiError, match=f"its disk holds the log up to offset {end_offset} so far"):
            await travel.list_records(pb.ListMetadataRecordsRequest(from_offset=from_offset, to_offset=end_offset + 4))
    answer = await travel.list_records(pb.ListMetadataRecordsRequest(from_offset=end_offset - 4, to_offset=end_offset - 1))
    assert ([batch.base_offset for batch in answer.batches], answer.next_offset) == ([end_offset - 4], end_offset - 1)


def lose_segments(lab: Lab, begin: int) -> int:
    """Remove the segments from an offset on, and return where the log ends then."""
    lost = [(base, path) for base, path in segments_in(lab.partition) if base >= begin]
    for _, path in lost:
        Path(path).unlink()
    return lost[0][0]


@pytest.mark.parametrize("begin", [0, 20])
async def test_a_snapshot_after_lost_segments_does_not_stand_for_their_records(lab: Lab, begin: int) -> None:
    end = lose_segments(lab, begin)
    for wanted in (end + 1, end + 2):
        with pytest.raises(ApiError, match=f"its disk holds the log up to offset {end} so far"):
            await travel_of(lab).list_records(pb.ListMetadataRecordsRequest(from_offset=max(0, end - 4), to_offset=wanted))
        with pytest.raises(ApiError, match=f"its disk holds the log up to offset {end} so far"):
            await travel_of(lab).describe_image(pb.DescribeImageRequest(offset=wanted))


OFFSETS = st.integers(0, 2 * BATCHES)
PLACES = st.tuples(st.integers(0, 9), st.integers(0, 9999), st.integers(1, 255))
"""A file by number, a byte of it, and what is done to that byte."""
DEEDS = st.one_of(
    st.tuples(st.just("list"), st.tuples(OFFSETS, OFFSETS)),
    st.tuples(st.just("describe"), OFFSETS),
    st.tuples(st.just("time"), st.integers(-1, BATCHES)),
    st.tuples(st.just("part"), st.just(None)),
    st.tuples(st.sampled_from(["clean", "lose", "put back"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["damage", "truncate"]), PLACES),
)


def deed_on_files(files: list[Path], whole: dict[Path, bytes], deed: str, what: Any) -> None:
    if deed == "clean":
        segments = segments_in(str(files[0].parent))
        for _, path in segments[: max(0, min(what, len(segments) - 1))]:
            Path(path).unlink()
    elif deed in ("lose", "put back"):
        path = files[what % len(files)]
        path.unlink(missing_ok=True) if deed == "lose" else path.write_bytes(whole[path])
    else:
        number, position, change = what
        path = files[number % len(files)]
        data = bytearray(path.read_bytes() if path.exists() else b"")
        if deed == "truncate":
            del data[position:]
        elif position < len(data):
            data[position] ^= change
        if path.exists():
            path.write_bytes(data)


async def told(travel: TimeTravel, request: Any) -> Any:
    """Return the response; None if it is refused with a reason."""
    is_list = isinstance(request, pb.ListMetadataRecordsRequest)
    try:
        return await (travel.list_records(request) if is_list else travel.describe_image(request))
    except ApiError as error:
        assert error.message
        assert error.code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR)
        return None


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return written(tmp_path_factory.mktemp("lab"))


@settings(max_examples=150, deadline=None)
@given(deeds=st.lists(DEEDS, max_size=30))
def test_whatever_becomes_of_the_files_a_node_that_remembers_places_tells_the_truth_or_refuses(
    module_lab: Lab, deeds: list[tuple[str, Any]]
) -> None:
    """It also tells everything that a node without remembered places tells."""
    lab, files = module_lab, sorted(each for each in Path(module_lab.partition).iterdir() if each.suffix != ".lock")
    whole = {path: path.read_bytes() for path in files}

    async def play() -> None:
        travel, part = travel_of(lab), pb.DescribeImageRequest(offset=2 * BATCHES)
        for deed, what in deeds:
            if deed == "list":
                request: Any = pb.ListMetadataRecordsRequest(from_offset=min(what), to_offset=max(what))
            elif deed == "describe":
                request = pb.DescribeImageRequest(offset=what)
            elif deed == "time":
                request = pb.DescribeImageRequest(time_ms=1000 * what + 500)
            elif deed == "part":
                request = part
            else:
                deed_on_files(files, whole, deed, what)
                continue
            answer, fresh = await told(travel, request), await told(travel_of(lab), request)
            if answer is None:
                assert fresh is None, (request, fresh)
                continue
            if deed == "list":
                first, last = min(what) // 2, min(max(what), answer.next_offset) // 2
                assert [codec.decode(each.body) for each in answer.batches] == lab.records[first:last]
                continue
            if deed != "time":
                assert answer.offset == request.offset // 2 * 2
            assert answer.append_time_ms == lab.images[answer.offset // 2].provenance.append_time_ms
            records = [*image_records(lab.images[answer.offset // 2])]
            found = [record for body in answer.bodies for record in codec.decode(body)]
            assert found == records[request.first_record :][: len(found)]
            reached = request.first_record + len(found)
            assert answer.next_record == reached or (answer.next_record, reached) == (0, len(records))
            part = pb.DescribeImageRequest(offset=answer.offset, first_record=answer.next_record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_travel, "ANSWER_BYTES", 200)
        patch.setattr(time_travel, "RECORDS_PER_BODY", 4)
        try:
            trio.run(play)
        finally:
            for path, data in whole.items():
                path.write_bytes(data)


def test_masked_secrets_are_equal_exactly_if_the_secrets_are() -> None:
    records: list[AnyRecord] = [
        UserScramCredential(0, "bob", 1, b"salt", b"stored", b"server", 4096),
        Config(0, 4, "", "ssl.keystore.password", "geheim"),
        RequestOutcome(0, bytes(16), 1, b"d", 1, b"answer"),
    ]
    one, again, other = ([masked(record, key) for record in records] for key in (b"k", b"k", b"l"))
    assert one == again != other
    assert not any(secret in codec.encode(one)[0] for secret in (b"salt", b"stored", b"server", b"geheim", b"answer"))
    assert masked(Config(0, 2, "t", "retention.ms", "1"), b"k") == Config(0, 2, "t", "retention.ms", "1")

"""Recovery distinguishes a torn tail from damage, and changes nothing when it refuses."""

from __future__ import annotations

import pytest

from kraftlab.quorum.storage import LogCorrupt, MetadataStore, WrongIdentity
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.recovery import SEALED, UNSEALED

DIRECTORY = partition_directory("/data")


def fill(disk, open_log, written, **options):
    log = open_log(disk, **options)
    for made in written:
        log.append(made.base_offset, made.end_offset, made.data)
        log.flush()
    return log


def paths(disk):
    return [f"{DIRECTORY}/{name}" for name in disk.names(DIRECTORY)]


def poke(disk, path, position, data):
    file = disk.open(path)
    file.pwrite(data, position)
    file.fdatasync()


def test_zeros_behind_the_last_batch_are_not_damage(disk, open_log, builder):
    written = builder.log(3, stamp_behind=1)
    fill(disk, open_log, written)
    log = open_log(disk)
    assert (log.end_offset, log.recovery_notes) == (3, [])


def test_bad_batch_at_or_above_every_stamp_is_cut_even_with_valid_batches_behind(disk, open_log, builder):
    written = builder.log(4)
    fill(disk, open_log, written, segment_bytes=100_000)
    poke(disk, paths(disk)[0], 4096 + len(written[0].data) + 30, b"\xff")
    log = open_log(disk, segment_bytes=100_000)
    assert log.end_offset == 1
    assert "cut" in log.recovery_notes[0]
    assert open_log(disk, segment_bytes=100_000).recovery_notes == []


@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("sealed_first", [True, False])
def test_a_sealing_torn_inside_the_magic_is_finished_though_later_batches_are_sealed(disk, open_log, builder, cut, sealed_first):
    written = builder.log(4, stamp_behind=1)
    fill(disk, open_log, written, segment_bytes=100_000)
    sealed = disk.snapshot()
    halves = (SEALED, UNSEALED) if sealed_first else (UNSEALED, SEALED)
    poke(disk, paths(disk)[0], 4096 + len(written[0].data), halves[0][:cut] + halves[1][cut:])
    log = open_log(disk, segment_bytes=100_000)
    assert (log.end_offset, log.recovery_notes) == (4, [])
    assert disk.snapshot() == sealed


def test_bad_batch_below_a_stamp_is_refused_with_file_position_offset_and_next_step(disk, open_log, builder):
    written = builder.log(4, stamp_behind=1)
    fill(disk, open_log, written, segment_bytes=100_000)
    position = 4096 + len(written[0].data)
    poke(disk, paths(disk)[0], position + 30, b"\xff")
    before = disk.snapshot()
    with pytest.raises(
        LogCorrupt, match=rf"00000000000000000000\.log position {position}.*offset 1 .*below offset 2.*only voter.*format"
    ):
        open_log(disk)
    assert disk.snapshot() == before


@pytest.mark.parametrize(("number", "message"), [(0, "segments before it are missing"), (1, r"does not follow|ends at offset")])
def test_a_missing_segment_below_a_stamp_is_refused(disk, open_log, builder, number, message):
    fill(disk, open_log, builder.log(30, stamp_behind=1))
    assert len(paths(disk)) >= 3
    disk.remove(paths(disk)[number])
    with pytest.raises(LogCorrupt, match=message):
        open_log(disk)


def test_every_flipped_bit_is_a_clean_cut_above_the_stamps_or_refused(disk, open_log, builder):
    written = builder.log(5, stamp_behind=2)
    fill(disk, open_log, written, segment_bytes=100_000)
    path = paths(disk)[0]
    original = disk.snapshot()[path]
    used = 4096 + sum(len(made.data) for made in written)
    positions = [*range(128), *range(128, 4096, 61), *range(4090, used + 64), *range(used + 64, len(original), 97)]
    outcomes = {"whole": 0, "cut": 0, "refused": 0}
    for position in positions:
        for bit in range(8):
            poke(disk, path, position, bytes([original[position] ^ (1 << bit)]))
            try:
                log = open_log(disk, segment_bytes=100_000)
            except LogCorrupt:
                outcomes["refused"] += 1
                assert disk.snapshot()[path] != original
            else:
                data = log.read(0, 1 << 20)
                assert data == b"".join(made.data for made in written)[: len(data)]
                assert log.end_offset >= 2, "cut below a stamp"
                outcomes["whole" if log.end_offset == 5 else "cut"] += 1
            poke(disk, path, 0, original)
    assert all(outcomes.values()), outcomes


def test_truncated_file_is_cut_or_refused_but_never_read_as_other_data(disk, open_log, builder, identity):
    written = builder.log(5, stamp_behind=2)
    fill(disk, open_log, written, segment_bytes=100_000)
    path = paths(disk)[0]
    original = disk.snapshot()[path]
    ends = []
    whole = 4096 + sum(len(made.data) for made in written)
    for size in (*range(0, whole, 7), whole):
        disk.remove(path)
        file = disk.open(path, create=True)
        file.pwrite(original[:size], 0)
        log = MetadataStore.open(disk, "/data", *identity[:2]).log
        data = log.read(0, 1 << 20)
        assert data == b"".join(made.data for made in written)[: len(data)]
        ends.append(log.end_offset)
    assert sorted(set(ends)) == [0, 1, 2, 3, 4, 5]


def test_cut_batches_stay_dead_even_if_the_same_prefix_is_appended_again(disk, open_log, builder):
    written = builder.log(4)
    log = fill(disk, open_log, written, segment_bytes=100_000)
    log.truncate(1)
    log.flush()
    log.append(1, 2, written[1].data)
    log.flush()
    assert open_log(disk, segment_bytes=100_000).end_offset == 2


def test_directory_of_another_node_or_cluster_is_refused(disk, open_log, builder, identity):
    fill(disk, open_log, builder.log(2))
    for wrong, message in (
        (("other", identity.directory_id), "belongs to cluster 'test-cluster'.*'other'"),
        (("test-cluster", bytes(16)), "copied from another node"),
    ):
        with pytest.raises(WrongIdentity, match=message):
            MetadataStore.open(disk, "/data", *wrong)


def test_interrupted_creation_of_a_segment_leaves_no_trace(disk, open_log, builder):
    fill(disk, open_log, builder.log(2, stamp_behind=1))
    file = disk.open(f"{DIRECTORY}/00000000000000000002.log", create=True)
    file.pwrite(b"KLS1 half a page", 0)
    log = open_log(disk)
    assert log.end_offset == 2
    assert disk.names(DIRECTORY) == ["00000000000000000000.log"]

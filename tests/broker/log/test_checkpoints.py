"""Checkpoint files, partition.metadata and leader epochs on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.log import checkpoints, leader_epochs
from kraftlab.broker.log.errors import CorruptFile
from kraftlab.broker.log.leader_epochs import EpochEntry, LeaderEpochs
from kraftlab.common.uuids import random_uuid


def test_offsets_come_back(tmp_path: Path) -> None:
    path = tmp_path / checkpoints.RECOVERY_POINTS
    offsets = {("a", 0): 5, ("a.b-c", 12): 2**40, ("b", 1): 0}
    checkpoints.write_offsets(path, offsets)
    assert path.read_text() == "0\n3\na 0 5\na.b-c 12 1099511627776\nb 1 0\n"
    assert checkpoints.read_offsets(path) == offsets
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_missing_file_means_no_offsets(tmp_path: Path) -> None:
    assert checkpoints.read_offsets(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na x 5\n", b"0\n1\na 0 -5\n", b"\xff\xfe"]
)
def test_a_corrupt_file_counts_as_no_offsets_with_a_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / checkpoints.HIGH_WATERMARKS
    path.write_bytes(content)
    assert checkpoints.read_offsets(path) == {}
    assert str(path) in caplog.text


def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    assert checkpoints.read_partition_metadata(tmp_path) is None
    topic_id = random_uuid()
    checkpoints.write_partition_metadata(tmp_path, topic_id)
    assert checkpoints.read_partition_metadata(tmp_path) == topic_id
    for content in ("", "version: 1\ntopic_id: x\n", "version: 0\ntopic_id: nonsense\n", "nonsense"):
        (tmp_path / checkpoints.PARTITION_METADATA).write_text(content)
        with pytest.raises(CorruptFile, match=r"partition\.metadata"):
            checkpoints.read_partition_metadata(tmp_path)


@pytest.mark.parametrize("content", ["", "nonsense", "topic_id: x\n"])
def test_a_damaged_partition_metadata_is_named_with_the_lines_that_it_lacks(tmp_path: Path, content: str) -> None:
    path = tmp_path / checkpoints.PARTITION_METADATA
    path.write_text(content)
    with pytest.raises(CorruptFile, match=f"^{path}: has no line `version: …`"):
        checkpoints.read_partition_metadata(tmp_path)


entries = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


@given(entries, st.integers(-1, 30), st.integers(0, 30))
def test_epochs_answer_like_a_list_of_records(steps: list[tuple[int, int]], asked: int, cut: int) -> None:
    table, records, epoch = LeaderEpochs(), [], 0
    for raise_by, count in steps:
        epoch += raise_by
        table.assign(epoch, len(records))
        records += [epoch] * count

    def answer() -> tuple[int, int]:
        floor = max((e for e in records if e <= asked), default=-1)
        return floor, sum(e <= asked for e in records)

    known = table.end_offset_for(asked, log_start_offset=0, log_end_offset=len(records))
    assert known[1] == answer()[1]
    assert known[0] == answer()[0] or (known[0] not in records and known[0] <= asked)
    assert [table.epoch_at(offset) for offset in range(len(records))] == records
    table.truncate_from_end(cut)
    assert [table.epoch_at(offset) for offset in range(min(cut, len(records)))] == records[:cut]
    table.truncate_from_start(min(cut // 2, len(records)))
    assert [table.epoch_at(offset) for offset in range(cut // 2, min(cut, len(records)))] == records[cut // 2 : cut]


def test_epochs_come_back_from_disk(tmp_path: Path) -> None:
    assert leader_epochs.read(tmp_path) is None
    table = LeaderEpochs([EpochEntry(1, 0), EpochEntry(4, 10)])
    table.write(tmp_path)
    again = leader_epochs.read(tmp_path)
    assert again is not None
    assert again.entries == table.entries
    assert not again.is_dirty_below(2**63 - 1)

"""The mark of a controller that has taken part in elections: without its election state it does not start again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage.committed_mark import read_committed
from kraftlab.quorum.storage.election_mark import FILE_NAME, check_votes_are_kept, mark_elections
from kraftlab.quorum.storage.election_store import ElectionStateStore
from kraftlab.quorum.storage.errors import LogCorrupt
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity, partition_directory

DIRECTORY_ID = b"directory-id-16b"


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A metadata directory whose controller has voted."""
    check_votes_are_kept(RealFileSystem(), str(tmp_path), DIRECTORY_ID)
    mark_elections(RealFileSystem(), str(tmp_path), DIRECTORY_ID)
    assert not (tmp_path / FILE_NAME).exists(), "it has no election state yet"
    ElectionStateStore(RealFileSystem(), str(tmp_path), LogIdentity("cluster", DIRECTORY_ID)).store(ElectionState(3, -1, None))
    mark_elections(RealFileSystem(), str(tmp_path), DIRECTORY_ID)
    check_votes_are_kept(RealFileSystem(), str(tmp_path), DIRECTORY_ID)
    return tmp_path


@pytest.mark.parametrize("lost", ["quorum-state", ""])
def test_a_controller_that_lost_its_vote_or_its_whole_log_is_refused(marked: Path, lost: str) -> None:
    partition = Path(partition_directory(str(marked)))
    if lost:
        (partition / lost).unlink()
    else:
        shutil.rmtree(partition)
    with pytest.raises(LogCorrupt, match=r"quorum-state is missing.*could vote twice"):
        check_votes_are_kept(RealFileSystem(), str(marked), DIRECTORY_ID)


def test_a_directory_that_was_formatted_again_is_another_voter(marked: Path) -> None:
    shutil.rmtree(partition_directory(str(marked)))
    check_votes_are_kept(RealFileSystem(), str(marked), b"another-id-16byt")


@pytest.mark.parametrize("content", [b"", bytes(50), b"{}\n00000000\n"])
def test_a_damaged_mark_is_written_again(marked: Path, content: bytes) -> None:
    intact = (marked / FILE_NAME).read_bytes()
    (marked / FILE_NAME).write_bytes(content)
    check_votes_are_kept(RealFileSystem(), str(marked), DIRECTORY_ID)
    mark_elections(RealFileSystem(), str(marked), DIRECTORY_ID)
    assert (marked / FILE_NAME).read_bytes() == intact


@pytest.mark.parametrize(
    "content", [None, b"", bytes(50), b"{}\n00000000\n", b'{"data_version":0,"offset":9}\n00000000\n', b"\xff\xfe"]
)
def test_a_damaged_mark_of_the_committed_offset_counts_as_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "committed").write_bytes(content)
    assert read_committed(RealFileSystem(), str(tmp_path)) == 0

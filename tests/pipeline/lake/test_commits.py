"""Only what a commit names counts, whatever was going on when its writer died."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from kraftlab.pipeline.errors import CorruptInput, WrongUse
from kraftlab.pipeline.lake import delta
from kraftlab.pipeline.lake.commits import Lake, RangeOverlap, range_name
from kraftlab.pipeline.storage import schemas

TABLE = "silver.configs"


def _rows(offsets: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"resource_type": "TOPIC", "resource": "t", "key": "k", "value": "v", "offset": offset} for offset in offsets],
        schema=schemas.arrow_schema(TABLE),
    )


def _commit(lake: Lake, lo: int, hi: int) -> None:
    with lake.writing():
        lake.commit_arrow(_rows(range(lo, hi)), TABLE, lo, hi)


def _offsets(lake: Lake, version: int | None = None) -> list[int]:
    if version is not None:
        lake = Lake(lake.uri)
        lake.pin(TABLE, version)
    return sorted(lake.arrow(TABLE, ["offset"]).column("offset").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake with a space"))


def test_a_lake_that_is_not_there_has_empty_tables(lake: Lake) -> None:
    assert not lake.exists()
    assert lake.arrow(TABLE).schema == schemas.arrow_schema(TABLE)
    assert lake.arrow(TABLE).num_rows == 0


def _log(lake: Lake, number: int) -> Path:
    return Path(lake.place()) / "silver" / "configs" / "_delta_log" / f"{number:020d}.json"


def test_files_of_a_commit_are_on_the_disk_before_it_and_the_commit_before_it_is_reported(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = _log(lake, 1)
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def spied(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, commit.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", spied)
    _commit(lake, 0, 5)
    (rows,) = (tmp_path / "lake with a space" / "silver" / "configs").glob("*/part-*.parquet")
    before = [inode for inode, exists in synced if not exists]
    assert before.index(rows.stat().st_ino) < before.index(rows.parent.stat().st_ino)
    assert {(path.stat().st_ino, True) for path in (commit, commit.parent)} <= set(synced)


def test_a_table_is_a_delta_table_with_its_files_in_directories_of_ranges(lake: Lake, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    _commit(lake, 0, 5)
    (path,) = (tmp_path / "lake with a space" / "silver" / "configs").glob("*/part-*.parquet")
    assert path.parent.name == range_name(0, 5) == f"{'0' * 20}-{'0' * 19}5"
    found = DeltaTable(tmp_path / "lake with a space" / "silver" / "configs").to_pyarrow_table()
    assert found.select(["offset", "key"]).to_pylist() == [{"offset": offset, "key": "k"} for offset in range(5)]


@pytest.mark.parametrize("content", [b"", bytes(100), b'{"commitInfo":{"timesta'])
def test_a_commit_of_which_a_power_cut_left_a_part_is_removed_by_the_next_writer(lake: Lake, content: bytes) -> None:
    _commit(lake, 0, 5)
    _log(lake, 2).write_bytes(content)
    _commit(Lake(lake.uri), 5, 8)
    assert _offsets(Lake(lake.uri)) == list(range(8))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_commit_that_lacks_its_last_line_is_removed_by_the_next_writer(lake: Lake, number: int) -> None:
    for at in range(number + 1):
        _commit(lake, at, at + 1)
    _log(lake, number + 1).unlink()
    lines = _log(lake, number).read_bytes().splitlines(keepends=True)
    _log(lake, number).write_bytes(b"".join(lines[:-1]))
    _commit(Lake(lake.uri), 5, 8)
    assert _offsets(Lake(lake.uri)) == [*range(max(0, number - 1)), 5, 6, 7]


def test_a_lake_of_the_old_format_is_refused_with_the_command_that_builds_it(lake: Lake) -> None:
    (Path(lake.place()) / "_commits").mkdir(parents=True)
    with pytest.raises(WrongUse, match=r"earlier version.*kraftlab pipeline ingest LOGDIR\.\.\. --lake .*lake with a space"):
        lake.exists()


def test_a_second_commit_of_one_version_is_refused(lake: Lake) -> None:
    _commit(lake, 0, 5)
    table = delta.Table(f"{lake.uri}/silver/configs", TABLE, "silver/configs")
    read = table.read()
    assert read is not None
    _commit(Lake(lake.uri), 5, 8)
    with pytest.raises(WrongUse, match=r"another process committed to silver\.configs at the same time"):
        table.commit(read, schemas.arrow_schema(TABLE), (), (), delta.Note(), is_change=False)


def test_a_commit_of_another_program_is_named(lake: Lake) -> None:
    from deltalake import DeltaTable

    _commit(lake, 0, 5)
    DeltaTable(Path(lake.place()) / "silver" / "configs").delete("offset = 3")
    with pytest.raises(CorruptInput, match=r"version 2 of silver\.configs was committed by another program \(DELETE\)") as caught:
        _offsets(lake)
    with pytest.raises(CorruptInput, match="another program"):
        _commit(Lake(lake.uri), 5, 8)
    assert _log(lake, 2).exists(), "it is whole, so no writer takes it for what a power cut left"
    assert f"remove {_log(lake, 2)};" in str(caught.value)
    _log(lake, 2).unlink()
    _commit(Lake(lake.uri), 5, 8)
    assert _offsets(Lake(lake.uri)) == list(range(8))


def test_earlier_versions_are_read_by_number_and_by_time(lake: Lake) -> None:
    for hi in (3, 4, 5):
        _commit(lake, 0, hi)
    assert [_offsets(lake, version) for version in (0, 1, 2)] == [[], [0, 1, 2], [0, 1, 2, 3]]
    with pytest.raises(WrongUse, match=r"silver\.configs has no version 4; the newest is 3"):
        lake.pin(TABLE, 4)
    earlier = Lake(lake.uri)
    earlier.pin(TABLE, 2)
    time_ms = earlier.committed_ms(TABLE)
    at_time = Lake(lake.uri)
    at_time.pin_time(time_ms)
    assert _offsets(at_time) in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert at_time.committed_ms(TABLE) == time_ms
    assert at_time.arrow("silver.topics").num_rows == 0
    with pytest.raises(WrongUse, match="has no version from before 5 "):
        at_time.pin_time(5)
    assert [(each.hi, each.number) for each in earlier.active(TABLE)] == [(4, 2)]
    lake.vacuum()
    with pytest.raises(WrongUse, match=r"version 2 of silver\.configs has files that a vacuum removed"):
        Lake(lake.uri).pin(TABLE, 2)


def test_a_range_done_again_counts_once(lake: Lake) -> None:
    for _ in range(3):
        _commit(lake, 0, 5)
    _commit(lake, 5, 8)
    assert _offsets(lake) == list(range(8))
    assert _offsets(lake, version=1) == list(range(5))


def test_a_wider_range_replaces_those_within(lake: Lake) -> None:
    _commit(lake, 0, 5)
    _commit(lake, 5, 8)
    _commit(lake, 0, 10)
    assert _offsets(lake) == list(range(10))
    assert [(each.lo, each.hi) for each in lake.active(TABLE)] == [(0, 10)]


def test_a_range_that_covers_another_in_part_is_refused(lake: Lake) -> None:
    _commit(lake, 0, 5)
    with pytest.raises(RangeOverlap, match=r"has the range \[0, 5\), which \[3, 9\) covers only in part; do \[0, 9\) instead"):
        _commit(lake, 3, 9)
    with pytest.raises(WrongUse, match="is not a range"):
        _commit(lake, 4, 4)


def test_what_no_commit_names_does_not_count_and_is_removed(lake: Lake, tmp_path: Path) -> None:
    _commit(lake, 0, 5)
    _commit(lake, 0, 5)
    orphan = tmp_path / "lake with a space" / "silver" / "configs" / range_name(0, 5) / "part-orphan.parquet"
    orphan.write_bytes(b"half a file")
    left = tmp_path / "lake with a space" / "silver" / "configs" / range_name(5, 9)
    left.mkdir()
    (left / "part-1.parquet").write_bytes(b"x")
    assert _offsets(lake) == list(range(5))
    assert lake.vacuum().files == 3
    assert not orphan.exists()
    assert not left.exists()
    assert _offsets(lake) == list(range(5))


def test_what_a_writer_left_that_was_killed_before_its_first_commit_is_removed(lake: Lake, tmp_path: Path) -> None:
    _commit(lake, 0, 5)
    left = tmp_path / "lake with a space" / "gold" / "plans" / range_name(0, 5)
    left.mkdir(parents=True)
    (left / "part-1.parquet").write_bytes(b"half a file")
    assert lake.vacuum().files == 1
    assert not left.exists()


def test_a_column_that_a_later_version_adds_is_null_in_earlier_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable

    whole = schemas.arrow_schema(TABLE)
    with monkeypatch.context() as patch:
        patch.setattr(schemas, "ARROW_SCHEMAS", {**schemas.ARROW_SCHEMAS, TABLE: whole.remove(whole.get_field_index("value"))})
        with lake.writing():
            lake.commit_arrow(_rows(range(2)), TABLE, 0, 2)
    assert lake.arrow(TABLE, ["value"])["value"].to_pylist() == [None, None]
    _commit(lake, 2, 4)
    assert lake.arrow(TABLE, ["offset", "value"])["value"].to_pylist() == [None, None, "v", "v"]
    assert [each.number for each in lake.active(TABLE)] == [1, 3], "the library added the column in version 2"
    found = DeltaTable(Path(lake.place()) / "silver" / "configs").to_pyarrow_table().sort_by("offset")
    assert found["value"].to_pylist() == [None, None, "v", "v"]
    lake.pin(TABLE, 2)
    assert _offsets(lake) == [0, 1]


def test_that_rows_are_gone_is_a_change_whatever_a_vacuum_took_away(lake: Lake) -> None:
    _commit(lake, 0, 5)
    _commit(lake, 5, 8)
    assert lake.changed(TABLE) == 2
    for _ in range(2):
        with lake.writing():
            lake.commit_arrow(_rows(()), TABLE, 0, 5)
        assert lake.changed(TABLE) == 3
        lake.vacuum()
        assert lake.changed(TABLE) == 3, "rows that are made of the second commit lack the removal by the third"
    with lake.writing():
        lake.commit_parts(TABLE, 8, 9, ())
    assert lake.changed(TABLE) == 3, "nothing came or went"


def test_vacuum_keeps_as_many_states_as_requested(lake: Lake) -> None:
    for hi in (3, 4, 5):
        _commit(lake, 0, hi)
    lake.vacuum(keep=2)
    assert _offsets(lake, version=2) == list(range(4))
    with pytest.raises(WrongUse, match="newest state"):
        lake.vacuum(keep=0)


def test_many_commits_become_a_checkpoint_and_old_ones_expire(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "COMMITS_PER_CHECKPOINT", 4)
    for at in range(8):
        _commit(lake, at, at + 1)
    lake.vacuum(keep=3)
    assert _log(lake, 6).with_suffix(".checkpoint.parquet").exists()
    assert not _log(lake, 1).exists()
    assert [_offsets(Lake(lake.uri), version) for version in (6, 7, 8)] == [list(range(version)) for version in (6, 7, 8)]
    _commit(lake, 0, 9)
    assert _offsets(Lake(lake.uri)) == list(range(9))
    with pytest.raises(WrongUse, match="expired"):
        lake.pin(TABLE, 2)


@pytest.mark.parametrize("content", [None, b"", bytes(2000)])
def test_a_data_file_that_is_gone_or_damaged_is_named(lake: Lake, content: bytes | None) -> None:
    _commit(lake, 0, 5)
    (path,) = (Path(lake.place()) / "silver" / "configs").glob("*/*.parquet")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(CorruptInput, match=rf"has a file of silver\.configs that cannot be read \(.*{path.name}.*restore it"):
        _offsets(lake)


@pytest.mark.parametrize("content", [b"{", b'{"commitInfo": "\xff"}'])
def test_a_commit_that_cannot_be_read_is_named(lake: Lake, content: bytes) -> None:
    _commit(lake, 0, 5)
    _log(lake, 1).write_bytes(content)
    with pytest.raises(CorruptInput, match=r"silver\.configs cannot be read"):
        _offsets(Lake(lake.uri))


KILLED = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from kraftlab.pipeline.lake import commits, delta
from kraftlab.pipeline.storage import schemas

point, place = sys.argv[1:]

def die(at, wrapped):
    def call(*args, **more):
        if point == f"before {at}":
            os.kill(os.getpid(), signal.SIGKILL)
        found = wrapped(*args, **more)
        if point == f"after {at}":
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return call

lake = commits.Lake(place)
delta.Table.commit = die("commit", delta.Table.commit)
delta.Table._sync = die("sync", delta.Table._sync)
table = "silver.configs"
with lake.writing():
    rows = pa.Table.from_pylist([{"offset": n, "value": "new"} for n in range(10)], schema=schemas.arrow_schema(table))
    lake.commit_arrow(rows, table, 0, 10)
"""


@pytest.mark.parametrize(
    ("point", "counts"),
    [
        ("before commit", False),
        ("after sync", False),
        ("after commit", True),
    ],
)
def test_a_killed_writer_leaves_all_or_nothing(lake: Lake, point: str, counts: bool) -> None:
    _commit(lake, 0, 10)
    child = subprocess.run([sys.executable, "-c", KILLED, point, lake.place()], timeout=60, check=False)
    assert child.returncode == -signal.SIGKILL
    values = set(lake.arrow(TABLE, ["value"]).column("value").to_pylist())
    assert values == ({"new"} if counts else {"v"})
    assert _offsets(lake) == list(range(10))
    _commit(lake, 0, 10)
    lake.vacuum()
    assert _offsets(lake) == list(range(10))
    assert len(lake.files(TABLE)) == 1


def test_one_process_writes_at_a_time_and_the_other_learns_the_holder(lake: Lake) -> None:
    held = "    print('held', flush=True)\n    sys.stdin.read()"
    code = f"import sys\nfrom kraftlab.pipeline.lake import lock\nwith lock.writing(sys.argv[1]):\n{held}"
    with subprocess.Popen([sys.executable, "-c", code, lake.uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(WrongUse, match=f"is being written by process {holder.pid} on ") as caught, lake.writing():
            pytest.fail("the lock was given twice")
        assert lake.place() in str(caught.value)
        os.kill(holder.pid, signal.SIGKILL)
    _commit(lake, 0, 2)
    assert _offsets(lake) == [0, 1]


def test_a_file_system_without_locks_is_an_error_of_one_line(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(WrongUse, match=r"cannot be locked \(No locks available\)"), lake.writing():
        pytest.fail("a lock was given that there is not")


def test_who_holds_a_lock_may_have_left_no_words_that_can_be_read(lake: Lake, tmp_path: Path) -> None:
    import fcntl

    _commit(lake, 0, 5)
    with (tmp_path / "lake with a space" / "_lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(WrongUse, match="by another process; wait"), lake.writing():
            pytest.fail("the lock was given twice")

"""Only what a manifest names counts, whatever was going on when its writer died."""

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
from kraftlab.pipeline.lake import schemas
from kraftlab.pipeline.lake.commits import Lake, Manifest, RangeOverlap, range_name

TABLE = "silver.configs"


def _rows(offsets: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"resource_type": "TOPIC", "resource": "t", "key": "k", "value": "v", "offset": offset} for offset in offsets],
        schema=schemas.arrow_schema(TABLE),
    )


def _commit(lake: Lake, lo: int, hi: int) -> None:
    with lake.writing():
        lake.commit_arrow(_rows(range(lo, hi)), TABLE, lo, hi)


def _offsets(lake: Lake, as_of: int | None = None) -> list[int]:
    return sorted(lake.arrow(TABLE, ["offset"], as_of).column("offset").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake with a space"))


def test_a_lake_that_is_not_there_has_empty_tables(lake: Lake) -> None:
    assert not lake.exists()
    assert lake.arrow(TABLE).schema == schemas.arrow_schema(TABLE)
    assert lake.arrow(TABLE).num_rows == 0


def test_what_a_manifest_names_is_on_the_disk_before_it_and_the_manifest_before_its_name(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = tmp_path / "lake with a space" / "_commits" / TABLE / "1.json"
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def spied(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, manifest.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", spied)
    _commit(lake, 0, 5)
    (rows,) = (tmp_path / "lake with a space" / "silver" / "configs").glob("range=*/part-*.parquet")
    before_its_name = [inode for inode, named in synced if not named]
    of_rows, of_manifest = before_its_name.index(rows.stat().st_ino), before_its_name.index(manifest.stat().st_ino)
    assert of_rows < before_its_name.index(rows.parent.stat().st_ino) < of_manifest
    assert (manifest.parent.stat().st_ino, True) in synced


def test_ranges_stand_where_their_names_say(lake: Lake, tmp_path: Path) -> None:
    _commit(lake, 0, 5)
    (path,) = (tmp_path / "lake with a space" / "silver" / "configs").glob("range=*/part-*.parquet")
    assert path.parent.name == range_name(0, 5) == f"range={'0' * 20}-{'0' * 19}5"
    assert (tmp_path / "lake with a space" / "_commits" / TABLE / "1.json").exists()


def test_a_range_done_again_counts_once(lake: Lake) -> None:
    for _ in range(3):
        _commit(lake, 0, 5)
    _commit(lake, 5, 8)
    assert _offsets(lake) == list(range(8))
    assert _offsets(lake, as_of=1) == list(range(5))


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


def test_what_no_manifest_names_does_not_count_and_is_removed(lake: Lake, tmp_path: Path) -> None:
    _commit(lake, 0, 5)
    _commit(lake, 0, 5)
    orphan = tmp_path / "lake with a space" / "silver" / "configs" / range_name(0, 5) / "part-orphan.parquet"
    orphan.write_bytes(b"half a file")
    left = tmp_path / "lake with a space" / "silver" / "configs" / range_name(5, 9) / "_temporary" / "0"
    left.mkdir(parents=True)
    (left / "part-1").write_bytes(b"x")
    assert _offsets(lake) == list(range(5))
    removed = lake.vacuum()
    assert (removed.files, removed.manifests) == (3, 1)
    assert not orphan.exists()
    assert not left.parent.parent.exists()
    assert _offsets(lake) == list(range(5))


def test_what_a_writer_left_that_was_killed_before_its_first_commit_is_removed(lake: Lake, tmp_path: Path) -> None:
    _commit(lake, 0, 5)
    left = tmp_path / "lake with a space" / "gold" / "plans" / range_name(0, 5)
    left.mkdir(parents=True)
    (left / "part-1.parquet").write_bytes(b"half a file")
    assert lake.vacuum().files == 1
    assert not left.exists()


def test_that_rows_are_gone_is_a_change_whatever_a_vacuum_took_away(lake: Lake) -> None:
    _commit(lake, 0, 5)
    _commit(lake, 5, 8)
    assert lake.changed(TABLE) == 2
    for _ in range(2):
        with lake.writing():
            lake.commit_arrow(_rows(()), TABLE, 0, 5)
        assert lake.changed(TABLE) == 3
        lake.vacuum()
        assert lake.changed(TABLE) == 3, "what was made of the second commit lacks what the third took away"
    with lake.writing():
        lake.commit_parts(TABLE, 8, 9, ())
    assert lake.changed(TABLE) == 3, "nothing came or went"


def test_vacuum_keeps_as_many_states_as_requested(lake: Lake) -> None:
    for hi in (3, 4, 5):
        _commit(lake, 0, hi)
    lake.vacuum(keep=2)
    assert _offsets(lake, as_of=2) == list(range(4))
    assert [each.number for each in lake.manifests(TABLE)] == [2, 3]
    with pytest.raises(WrongUse, match="newest state"):
        lake.vacuum(keep=0)


def test_a_table_is_read_while_a_vacuum_takes_old_manifests_away(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for lo, hi in ((0, 4), (4, 8), (0, 8)):
        _commit(lake, lo, hi)
    reader = Lake(lake.uri)
    read = reader.read_manifest

    def slowly(path: str) -> Manifest:
        lake.vacuum()
        return read(path)

    monkeypatch.setattr(reader, "read_manifest", slowly)
    assert _offsets(reader) == list(range(8))


@pytest.mark.parametrize("content", [b"{", b'{"table": "\xff"}'])
def test_a_manifest_that_is_none_is_named(lake: Lake, tmp_path: Path, content: bytes) -> None:
    _commit(lake, 0, 5)
    (tmp_path / "lake with a space" / "_commits" / TABLE / "1.json").write_bytes(content)
    with pytest.raises(CorruptInput, match=r"1\.json is not a manifest"):
        _offsets(lake)


KILLED = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from kraftlab.pipeline.lake import commits, schemas

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
lake.publish = die("publish", lake.publish)
commits._write = die("manifest", commits._write)
table = "silver.configs"
with lake.writing():
    rows = pa.Table.from_pylist([{"offset": n, "value": "new"} for n in range(10)], schema=schemas.arrow_schema(table))
    lake.commit_arrow(rows, table, 0, 10)
"""


@pytest.mark.parametrize(
    ("point", "counts"),
    [
        ("before publish", False),
        ("after manifest", False),
        ("after publish", True),
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
        file.write(b'{"pid": 1, "host": "\xff"}')
        file.flush()
        with pytest.raises(WrongUse, match="by an unknown process"), lake.writing():
            pytest.fail("the lock was given twice")

"""Owners of logs, and the committed end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.metadata import records as r
from kraftlab.pipeline.errors import CorruptInput, WrongUse
from kraftlab.pipeline.sources.formats import FORMATS
from kraftlab.pipeline.sources.survey import LogEnd, survey

OWN, KAFKA = FORMATS["kraftlab"], FORMATS["kafka"]
Make = Callable[..., Any]


def _survey(*places: Path, form: Any = OWN, cluster_id: str | None = None) -> Any:
    return survey([str(place) for place in places], form, cluster_id)


def test_the_largest_stamp_of_any_log_bounds_what_is_committed(own_log: Make) -> None:
    ahead, behind = own_log(1), own_log(2)
    ahead.segment([[r.NoOp(0)]] * 5)
    behind.segment([[r.NoOp(0)]] * 3)
    found = _survey(ahead.directory, behind.directory)
    assert (found.committed_end, found.log_end) == (4, 5)
    assert found.logs == (LogEnd(1, 0, 5), LogEnd(2, 0, 3))
    assert found.cluster_id == "test-cluster"


def test_the_stamp_is_found_after_a_damage_and_in_the_newest_segment_that_has_batches(own_log: Make) -> None:
    log = own_log()
    path = log.segment([[r.NoOp(0)]] * 5)
    log.segment([], zeros=9000)
    data = bytearray(path.read_bytes())
    data[4096 + 60] ^= 1
    path.write_bytes(data)
    assert _survey(log.directory).committed_end == 4


def test_a_snapshot_is_committed(own_log: Make) -> None:
    log = own_log()
    log.snapshot(30, [r.NoOp(0)])
    found = _survey(log.directory)
    assert (found.committed_end, found.log_end, found.logs) == (30, 30, (LogEnd(1, 30, 30),))


def test_a_log_whose_beginning_was_cleaned_says_so(own_log: Make) -> None:
    log = own_log()
    log.next_offset = 100
    log.segment([[r.NoOp(0)]] * 2)
    assert _survey(log.directory).logs == (LogEnd(1, 100, 102),)


def test_a_file_whose_name_is_not_utf_8_is_not_part_of_the_log(own_log: Make) -> None:
    log = own_log()
    log.segment([[r.NoOp(0)]])
    (log.partition / "junk\udcff").touch()
    assert _survey(log.directory).log_end == 1


def test_logs_of_two_clusters_are_refused(own_log: Make) -> None:
    one, other = own_log(1, "cluster-a"), own_log(2, "cluster-b")
    one.segment([[r.NoOp(0)]])
    other.segment([[r.NoOp(0)]])
    with pytest.raises(CorruptInput, match="is of cluster cluster-b, not of cluster-a; give the logs of one cluster"):
        _survey(one.directory, other.directory)
    with pytest.raises(CorruptInput, match="is of cluster cluster-a, not of cluster-x"):
        _survey(one.directory, cluster_id="cluster-x")


def test_a_segment_of_another_cluster_than_its_directory_is_refused(own_log: Make, tmp_path: Path) -> None:
    one, other = own_log(1, "cluster-a"), own_log(2, "cluster-b")
    path = other.segment([[r.NoOp(0)]])
    path.rename(one.partition / path.name)
    with pytest.raises(CorruptInput, match="give the logs of one cluster"):
        _survey(one.directory)


def test_an_older_segment_of_another_cluster_is_refused_when_it_is_read(own_log: Make, rows_of: Make) -> None:
    one, other = own_log(1, "cluster-a"), own_log(2, "cluster-b")
    path = other.segment([[r.NoOp(0)]])
    path.rename(one.partition / path.name)
    one.next_offset = 1
    one.segment([[r.NoOp(0)]] * 2)
    with pytest.raises(CorruptInput, match="is of cluster cluster-b, not of cluster-a"):
        rows_of("kraftlab", one.directory)


def test_of_kafkas_logs_half_must_have_it(tmp_path: Path, batch: Make, frame: Make) -> None:
    places = []
    for node_id, count in enumerate((5, 3, 4)):
        directory = tmp_path / str(node_id)
        directory.mkdir()
        (directory / "meta.properties").write_text(f"version=1\ncluster.id=k\nnode.id={node_id}\ndirectory.id=d\n")
        log = b"".join(batch([frame(20, 0, b"\x00")], offset) for offset in range(count))
        (directory / "00000000000000000000.log").write_bytes(log)
        places.append(directory)
    assert _survey(*places, form=KAFKA).committed_end == 4
    assert _survey(places[0], form=KAFKA).committed_end == 5
    assert _survey(*places, form=KAFKA).cluster_id == "k"


def test_logs_without_an_identity_are_distinguished(own_log: Make) -> None:
    one, other = own_log(1), own_log(2)
    for log in (one, other):
        log.segment([[r.NoOp(0)]])
        (log.directory / "meta.properties").unlink()
    assert [log.controller_id for log in _survey(one.directory, other.directory).logs] == [-2, -1]


def test_the_segments_of_one_log_without_an_identity_are_one_log(tmp_path: Path, batch: Make, frame: Make) -> None:
    paths = [tmp_path / f"{base:020d}.log" for base in (0, 3)]
    for path, base in zip(paths, (0, 3), strict=True):
        path.write_bytes(b"".join(batch([frame(20, 0, b"\x00")], base + number) for number in range(3)))
    found = _survey(*paths, form=KAFKA)
    assert (found.logs, found.committed_end) == ((LogEnd(-1, 0, 6),), 6)
    assert [file.next_offset for file in found.files] == [3, None], "the first is not one that is being written"
    with pytest.raises(WrongUse, match="give each log once"):
        _survey(tmp_path, paths[0], form=KAFKA)


def test_what_a_directory_was_begun_with_does_not_hide_its_log(tmp_path: Path, batch: Make, frame: Make, rows_of: Make) -> None:
    """Kafka's bootstrap.checkpoint is next to the log's directory; until 3.4 it had no footer."""
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "bootstrap.checkpoint").write_bytes(batch([frame(20, 0, b"\x00")]))
    assert [file.name for file in _survey(tmp_path, form=KAFKA).files] == ["bootstrap.checkpoint"]
    assert rows_of("kafka", tmp_path, rows="damages") == []
    (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(batch([frame(20, 0, b"\x00")] * 3))
    assert _survey(tmp_path, form=KAFKA).logs == (LogEnd(-1, 0, 3),)


def test_files_without_an_identity_whose_names_say_no_offset_are_logs_of_their_own(
    tmp_path: Path, batch: Make, frame: Make
) -> None:
    for name, count in (("one", 2), ("other", 3)):
        (tmp_path / name).write_bytes(b"".join(batch([frame(20, 0, b"\x00")], number) for number in range(count)))
    found = _survey(tmp_path / "one", tmp_path / "other", form=KAFKA)
    assert found.logs == (LogEnd(-2, 0, 3), LogEnd(-1, 0, 2))
    with pytest.raises(WrongUse, match="give each log once"):
        _survey(tmp_path / "one", tmp_path / "one", form=KAFKA)


@pytest.mark.parametrize("text", ["node.id=x\ncluster.id=c\n", "node.id=1\n", "\\u00zz"])
def test_an_identity_that_says_nothing_is_named(own_log: Make, text: str) -> None:
    log = own_log()
    log.segment([[r.NoOp(0)]])
    (log.directory / "meta.properties").write_text(text)
    with pytest.raises(CorruptInput, match=r"meta\.properties does not identify its log"):
        _survey(log.directory)


def test_places_that_hold_no_log_and_logs_given_twice_are_refused(own_log: Make, tmp_path: Path) -> None:
    log = own_log()
    log.segment([[r.NoOp(0)]])
    with pytest.raises(WrongUse, match="does not exist; give a directory"):
        _survey(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongUse, match="holds no metadata log"):
        _survey(tmp_path / "empty")
    with pytest.raises(WrongUse, match="of node 1; give each log once"):
        _survey(log.directory, log.partition)

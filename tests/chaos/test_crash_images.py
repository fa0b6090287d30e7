"""The mover and its recovery against every crash: what is recorded, which images that gives, that all of them come back whole,
and that planted bugs are seen."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from jepsen_lite.crash_images.mutants import BUGS, IN_THE_RUN, hunt
from jepsen_lite.crash_images.protocol import SCRIPTS, record
from jepsen_lite.crash_images.recorder import Recorder
from jepsen_lite.crash_images.recovery import IN_ORDER, KILL, cases, judge, quiet, recovering
from jepsen_lite.disk_model import Create, DiskModel, Rename, SyncDirectory, SyncFile, Write
from jepsen_lite.watched_disks import NotRecorded

FILE = 7
QUICK = {"M1-swap+M1-ends": IN_THE_RUN, "M4": KILL, "M6": KILL, "M8-epochs": IN_THE_RUN, "X3-cut+X3-align": IN_THE_RUN}
SHOW_TOGETHER = {("M1-swap", "M1-ends"), ("M1-swap", "X2-copy"), ("M1-ends", "X2-copy"), ("X1-align", "X3-cut")}
"""Bugs that do no harm alone: with the other, what would have stopped them is gone."""
HIDE_EACH_OTHER = {("M5", "X1-level"), ("M5", "X3-align"), ("M1-ends", "X3-align")}
"""With the first, the second is never in the situation where it shows: the move ends before the leader changes, or is not held up
by ends that differ."""
EVERY = {"follower": 3}
"""Of the images of the longest script so many; the nightly tests have all."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_replica_is_whole_after_every_crash(script: str) -> None:
    with quiet():
        recorded = record(script)
    assert recorded.faults == ()
    wanted = cases(recorded)
    assert len(wanted) > 50
    assert judge(recorded, dict([*wanted.items()][:: EVERY.get(script, 1)]), limit=3) == []


@pytest.mark.nightly
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_whole_broker_settles_after_every_crash(script: str) -> None:
    with quiet():
        recorded = record(script)
    assert judge(recorded, cases(recorded), thorough=True, limit=3) == []


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["busy", "idle", "changed-mind", "full-target", "follower"])
def test_the_replica_is_whole_after_a_second_crash_in_the_recovery_from_the_first(script: str) -> None:
    """Of every fiftieth image, each step of its recovery."""
    with quiet():
        recorded = record(script)
    for case, demand in list(cases(recorded).items())[::50]:
        again = recovering(recorded, case, demand)
        assert judge(again, cases(again, (KILL, IN_ORDER)), limit=3) == [], (case.step, case.crash)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    hunted = hunt(name)
    assert hunted.found
    assert hunted.crash == QUICK[name]
    assert hunted.fault


@pytest.mark.nightly
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_among_all_images_unless_something_else_stands_in_its_way(name: str) -> None:
    likely_first = dict.fromkeys((*BUGS[name].scripts, *SCRIPTS))
    assert hunt(name, tuple(likely_first)).found == (not BUGS[name].masked_by)


def pairs_that_show() -> list[tuple[str, str]]:
    """All but those of two bugs that are masked, and those that hide each other."""
    pairs = [pair for pair in itertools.combinations(BUGS, 2) if pair not in HIDE_EACH_OTHER]
    return [pair for pair in pairs if pair in SHOW_TOGETHER or not all(BUGS[name].masked_by for name in pair)]


@pytest.mark.nightly
@pytest.mark.parametrize("pair", pairs_that_show(), ids="+".join)
def test_two_bugs_together_are_found_if_one_is_alone_or_the_other_stood_in_its_way(pair: tuple[str, str]) -> None:
    bugs = sorted((BUGS[name] for name in pair), key=lambda bug: bool(bug.masked_by))
    likely_first = dict.fromkeys((*bugs[0].scripts, *bugs[1].scripts, *SCRIPTS))
    assert hunt("+".join(pair), tuple(likely_first)).found


def disk_with_a_file() -> DiskModel:
    model = DiskModel(["d"])
    for operation in (Create(0, "a", FILE, False), Write(FILE, 0, b"old."), SyncFile(FILE), SyncDirectory(0)):
        model.apply(operation)
    return model


def test_a_write_that_is_not_synced_is_kept_or_lost_or_torn_or_zeros() -> None:
    model = disk_with_a_file()
    model.apply(Write(FILE, 4, b"new!"))
    contents = {dict(tree)["d/a"] for tree in model.in_order()}
    assert contents == {b"old.", b"old.new!", b"old.ne", b"old.\0\0\0\0"}
    assert dict(model.as_seen())["d/a"] == b"old.new!"
    model.apply(SyncFile(FILE))
    assert {dict(tree)["d/a"] for tree in model.in_any_order()} == {b"old.new!"}


def test_names_persist_in_order_or_in_any_order_and_a_rename_is_one_change() -> None:
    model = disk_with_a_file()
    model.apply(Rename(0, "a", "b", FILE))
    model.apply(Create(0, "c", 8, False))

    def names(trees: object) -> set[str]:
        return {"".join(path[2:] for path, _ in tree) for tree in trees}

    assert names(model.in_order()) == {"a", "b", "bc"}
    assert names(model.in_any_order()) == {"a", "b", "ac", "bc"}
    model.apply(SyncDirectory(0))
    assert names(model.in_any_order()) == {"bc"}


def test_the_recorder_notes_what_is_really_done_and_notices_what_it_did_not_see(tmp_path: Path) -> None:
    disk = tmp_path / "d"
    disk.mkdir()
    recorder = Recorder([disk])
    with recorder.watching():
        (disk / "sub").mkdir()
        with open(disk / "sub" / "x.tmp", "w", encoding="utf-8") as file:
            file.write("text")
            file.flush()
            os.fsync(file.fileno())
        os.replace(disk / "sub" / "x.tmp", disk / "sub" / "x")
        (tmp_path / "elsewhere").write_bytes(b"not recorded")
    kinds = [type(operation).__name__ for operation in recorder.trace]
    assert kinds == ["SyncDirectory", "Create", "Create", "Write", "SyncFile", "Rename"]
    (disk / "sub" / "y").write_bytes(b"behind its back")
    with pytest.raises(NotRecorded, match="d/sub/y"):
        recorder.check()

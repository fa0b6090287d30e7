"""The mover and its recovery against every crash: what is recorded, which images that gives, that all of them come back whole,
and that planted bugs are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from jepsen_lite.mutants.rooms import hunt_bug
from kraftlab.broker.log.files import write_durably
from kraftlab.checking.mutant import hunt, planted
from kraftlab.simulation.crash_images.mutants import BUGS, HUNTED, IN_THE_RUN, judged, scripts_of
from kraftlab.simulation.crash_images.protocol import SCRIPTS, record
from kraftlab.simulation.crash_images.recorder import Recorder
from kraftlab.simulation.crash_images.recovery import IN_ORDER, KILL, cases, judge, quiet, recovering, sample
from kraftlab.simulation.crash_images.watched_disks import NotRecorded

pytestmark = pytest.mark.usefixtures("disks_without_waiting")

QUICK = {"M1-swap+M1-ends": IN_THE_RUN, "M4": KILL, "M6": KILL, "M8-epochs": IN_THE_RUN, "X3-cut+X3-align": IN_THE_RUN}


SAMPLED = ("busy", "dead-target", "idle")


@pytest.mark.parametrize(
    "script", [pytest.param(script, marks=[pytest.mark.nightly] * (script not in SAMPLED)) for script in SCRIPTS]
)
def test_the_replica_is_whole_after_a_sample_of_every_kind_of_crash(script: str) -> None:
    """The nightly tests judge all images, and samples of all scripts."""
    with quiet():
        recorded = record(script)
    assert recorded.faults == ()
    wanted = cases(recorded)
    assert len(wanted) > 50
    assert judge(recorded, sample(wanted), limit=3) == []


def test_an_image_of_a_kill_is_judged_as_one_even_if_a_loss_of_power_could_have_left_it_before() -> None:
    with quiet():
        recorded = record("changed-mind")
    of_kills = {(case.tree, case.assigned) for case in cases(recorded, (KILL,))}
    assert of_kills == {(case.tree, case.assigned) for case in cases(recorded) if case.crash == KILL}


@pytest.mark.parametrize("name", ["M1-swap", "M1-ends"])
def test_a_planted_bug_changes_nothing_where_it_does_not_matter(name: str) -> None:
    """In this script nothing is appended during the move."""

    def operations() -> list[str]:
        with quiet():
            return [type(operation).__name__ for operation in record("idle").trace]

    whole = operations()
    with planted(BUGS[name]):
        assert operations() == whole


@pytest.mark.nightly
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_whole_broker_settles_after_every_crash(script: str) -> None:
    with quiet():
        recorded = record(script)
    assert judge(recorded, cases(recorded), thorough=True, limit=3) == []


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["busy", "idle", "changed-mind", "full-target", "follower"])
def test_the_replica_is_whole_after_a_second_crash_in_the_recovery_from_the_first(script: str) -> None:
    """Judge each step of the recovery of every fiftieth image."""
    with quiet():
        recorded = record(script)
    for case, demand in list(cases(recorded).items())[::50]:
        again = recovering(recorded, case, demand)
        assert judge(again, cases(again, (KILL, IN_ORDER)), limit=3) == [], (case.step, case.crash)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    hunted = hunt_bug(name)
    assert hunted.found
    assert hunted.rule == QUICK[name]
    assert hunted.words


@pytest.mark.nightly
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_among_all_images_unless_it_is_masked(name: str) -> None:
    likely_first = dict.fromkeys((*scripts_of(name), *SCRIPTS))
    with planted(BUGS[name]):
        assert hunt(name, likely_first, judged).found == (not BUGS[name].limits.masked_by)


def test_every_bug_is_hunted_alone_or_with_one_that_unmasks_it() -> None:
    assert {part for name in HUNTED for part in name.split("+")} == set(BUGS)
    assert all(not BUGS[name].limits.masked_by for name in HUNTED if "+" not in name)


def test_the_recorder_notes_what_is_really_done_and_notices_what_it_did_not_see(tmp_path: Path) -> None:
    disk = tmp_path / "d"
    disk.mkdir()
    recorder = Recorder([disk])
    with recorder.watching():
        (disk / "sub").mkdir()
        write_durably(disk / "sub" / "x", "text")
        (tmp_path / "elsewhere").write_bytes(b"not recorded")
    kinds = [type(operation).__name__ for operation in recorder.trace]
    assert kinds == ["SyncDirectory", "Create", "Create", "Write", "SyncFile", "Rename", "SyncDirectory"]
    (disk / "sub" / "y").write_bytes(b"behind its back")
    with pytest.raises(NotRecorded, match="d/sub/y"):
        recorder.check()

"""The mover and its recovery against every crash: what is recorded, which images that gives, that all of them come back whole,
and that planted bugs are seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlab.broker.log.files import write_durably
from kraftlab.checking.mutant import Finding, planted
from kraftlab.cli import main
from kraftlab.common.exit_codes import DONE, FAILED, USAGE
from kraftlab.simulation.crash_images import pairs as crash_pairs
from kraftlab.simulation.crash_images.mutants import BUGS, IN_THE_RUN, hunt
from kraftlab.simulation.crash_images.pairs import HIDE_EACH_OTHER, SHOW_TOGETHER, hunt_pair, pairs, shows
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
    hunted = hunt(name)
    assert hunted.found
    assert hunted.rule == QUICK[name]
    assert hunted.words


@pytest.mark.nightly
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_among_all_images_unless_it_is_masked(name: str) -> None:
    likely_first = dict.fromkeys((*BUGS[name].limits.scripts, *SCRIPTS))
    assert hunt(name, tuple(likely_first)).found == (not BUGS[name].limits.masked_by)


@pytest.mark.nightly
@pytest.mark.parametrize("pair", pairs())
def test_two_bugs_together_are_found_if_one_is_alone_or_each_masked_the_other(pair: str) -> None:
    hunted = hunt_pair(pair)
    assert hunted.found == shows(pair), hunted


def test_every_pair_is_listed_as_showing_or_not() -> None:
    assert len(pairs()) == len(BUGS) * (len(BUGS) - 1) // 2
    assert set(pairs()) >= SHOW_TOGETHER | HIDE_EACH_OTHER
    assert all(all(BUGS[name].limits.masked_by for name in pair.split("+")) for pair in SHOW_TOGETHER)
    assert not any(shows(pair) for pair in HIDE_EACH_OTHER)
    assert len(pairs(f"M{number}" for number in range(1, 9))) == 45


def test_the_command_reports_each_pair_and_fails_if_a_required_one_does_not_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hunted(pair: str) -> Finding[str]:
        is_found = pair in ("M1-swap+M1-ends", "M1-ends+M5")
        return Finding(pair, is_found, 9, KILL if is_found else "", "gone" if is_found else "", 0.5, "busy")

    monkeypatch.setattr(crash_pairs, "hunt_pair", hunted)
    assert main.run(["chaos", "mutants", "--ids", "m1", "--pairs", "--jobs", "1"]) == DONE
    assert "1 of 1 pairs show; 9 images" in capsys.readouterr().out
    assert main.run(["chaos", "mutants", "--ids", "m1,m5,m7", "--pairs", "--jobs", "1", "--json"]) == FAILED
    document = json.loads(capsys.readouterr().out)
    assert (document["pairs"], document["shown"], document["images"]) == (6, 2, 54)
    assert document["missed"] == ["M1-swap+M7", "M1-ends+M7", "M5+M7"]
    assert document["news"] == ["M1-ends+M5"]
    assert document["each"][0]["name"] == "M1-swap+M1-ends"
    assert main.run(["chaos", "mutants", "--ids", "r1", "--pairs"]) == USAGE
    assert "R1 has no two bugs that can be paired; only bugs of the mover can: M1, M2" in capsys.readouterr().err


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

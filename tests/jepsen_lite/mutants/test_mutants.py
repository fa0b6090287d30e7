"""Planted bugs of all rooms: one hunt, one command. The tests of the rooms hunt the bugs that are found quickly."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from jepsen_lite.mutants import canary, hash_seeds, rooms
from jepsen_lite.mutants.rooms import ROOMS, Bug, hunt_bug
from jepsen_lite.verdicts import Verdict
from kraftlab.checking.mutant import Mutant, MutantDoesNotApply, Shown, planted
from kraftlab.cli import main
from kraftlab.common.exit_codes import DONE, FAILED, USAGE
from kraftlab.quorum.core.outbox import Outbox
from kraftlab.simulation.consensus.mutants.seeds import Seeds
from kraftlab.simulation.crash_images.mutants import IN_THE_RUN

QUICK = {
    "minority-commits": "S8",
    "answer-before-commit": "M3",
    "linearizable-read-as-it-is": "witness+linearizable",
    "X2-copy": IN_THE_RUN,
}
"""One bug of each room and the rule that it breaks first."""


def run(*arguments: str) -> int:
    return main.run(["mutants", "--jobs", "1", *arguments])


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the attempts of bugs: of the first by name."""

    def plays(**shown: Callable[[int], Shown]) -> None:
        bugs = {
            name.replace("_", "-"): Bug(name.replace("_", "-"), "a planted bug", (), lambda count: range(count or 3), play)
            for name, play in shown.items()
        }
        monkeypatch.setattr(rooms, "ROOMS", {"consensus": bugs})
        monkeypatch.setattr("jepsen_lite.commands.mutants.ROOMS", {"consensus": bugs})

    return plays


def test_no_two_rooms_share_a_name() -> None:
    assert list(ROOMS) == ["consensus", "metadata", "clients", "disks"]
    names = [name for room in ROOMS.values() for name in room]
    assert len(names) == len(set(names)) > 130
    assert all(bug.why for room in ROOMS.values() for bug in room.values())


def test_one_bug_of_each_room_is_found_and_its_row_names_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*(f"--only={name}" for name in QUICK), "--json") == DONE
    rows = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["room"], row["found"]) for row in rows] == [
        (name, room, True) for name, room in zip(QUICK, ROOMS, strict=True)
    ]
    for row in rows:
        assert row["rule"] == QUICK[row["id"]]
        assert row["attempts"] >= 1
        assert row["seconds"] > 0
        assert (row["steps"] is None) == (row["room"] == "disks")
        assert row["why"] == ROOMS[row["room"]][row["id"]].why


def test_a_missed_bug_fails_the_command_and_is_named(plays: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    plays(found=lambda seed: Shown("S8", "S8 says so") if seed == 1 else Shown(), missed=lambda seed: Shown())
    assert run() == FAILED
    header, found, missed, *summary = capsys.readouterr().out.splitlines()
    assert header.split() == ["planted", "bug", "room", "attempts", "rule", "seconds", "what", "it", "is"]
    assert re.fullmatch(r"found   consensus +2  S8 +\d\.\d  a planted bug", found)
    assert re.fullmatch(r"missed  consensus +not in 3  - +\d\.\d  a planted bug", missed)
    assert summary[0].startswith("1 of 2 found, after 2 attempts in the median; ")
    assert summary[1:] == ["not found: missed"]
    assert run("--only", "found") == DONE
    assert run("--only", "found", "--seeds", "1") == FAILED, "it needs two"
    assert "not in 1" in capsys.readouterr().out


def test_the_budget_ends_a_hunt(plays: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    plays(missed=lambda seed: Shown())
    assert run("--budget", "0.000001", "--json") == FAILED
    assert json.loads(capsys.readouterr().out)[0]["attempts"] == 1


def test_a_bug_that_does_not_fit_the_code_is_not_found_and_the_others_are_hunted(
    plays: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(seed: int) -> Shown:
        raise MutantDoesNotApply("there is no such function")

    plays(gone=gone, found=lambda seed: Shown("S8"))
    assert run() == FAILED
    assert "not found: gone: it no longer fits the code: there is no such function" in capsys.readouterr().out


def test_a_mutant_that_merely_crashes_is_not_found() -> None:
    broken = Mutant("broken", (Outbox,), "put", lambda original: lambda *arguments: 1 // 0, "raises", Seeds("S17"))
    with planted(broken), pytest.raises(MutantDoesNotApply, match="ZeroDivisionError"):
        rooms.play_seed(broken, 0)


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("clients", "--list") == DONE
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        [name, "clients"] for name in ROOMS["clients"]
    ]
    assert run("--list", "--only", "vote-forgotten", "--json") == DONE
    assert json.loads(capsys.readouterr().out) == [
        {"id": "vote-forgotten", "room": "consensus", "why": "a restart forgets the vote"}
    ]


def test_wrong_names_and_budgets_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "half-flus") == USAGE
    assert "there is no planted bug half-flus; did you mean half-flush?" in capsys.readouterr().err
    assert run("disks", "--only", "half-flush") == USAGE
    assert "there is no planted bug of disks half-flush" in capsys.readouterr().err
    assert run("kitchen") == USAGE
    assert run("--budget", "soon") == USAGE
    assert "invalid duration soon: expected e.g. 15s or 2m" in capsys.readouterr().err
    with pytest.raises(MutantDoesNotApply, match="nonsense: unknown bug"):
        hunt_bug("nonsense")


@pytest.mark.nightly
def test_two_processes_that_hash_strings_differently_show_that_a_set_of_strings_has_an_order() -> None:
    """Without the bug both processes do the same (test_simulated_world.py)."""
    finding = hunt_bug("answers-in-a-set")
    assert (finding.found, finding.rule) == (True, "two hash seeds")
    output = re.fullmatch(r"seed \d+ is (\w+) .*with hash seed 1, (\w+) .*with 2", finding.words)
    assert output is not None and output[1] != output[2], finding.words
    assert finding.seconds > 0


def test_processes_that_do_not_end_in_time_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def stuck(name: str, first: int, count: int, hash_seed: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(["sleep", "30"], stdout=subprocess.PIPE, text=True))
        return started[-1]

    monkeypatch.setattr(hash_seeds, "started", stuck)
    monkeypatch.setattr(hash_seeds, "_TIMEOUT_S", 0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        hash_seeds.compared("", 0)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2


SAFETY_LOST = Verdict(checker="witness", valid=False, reason="an acknowledged write is gone")
NODE_ENDED = Verdict(checker="node-crashes", valid=False, kind="crash", reason="it ended")


@pytest.mark.parametrize(("wrong", "rule"), [((SAFETY_LOST, NODE_ENDED), "witness"), ((NODE_ENDED,), ""), ((), "")])
def test_the_canary_counts_if_acknowledged_writes_are_lost(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[Verdict, ...], rule: str
) -> None:
    monkeypatch.setattr(canary, "means", lambda: canary.Means("a library"))
    monkeypatch.setattr(canary, "run_canary", lambda library: canary.CanaryRun(wrong, 7))
    hunted = hunt_bug(canary.IGNORED)
    assert (hunted.found, hunted.rule) == (bool(rule), rule)


def test_a_machine_without_the_means_has_no_canary_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(canary, "means", lambda: canary.Means(why="power: only root mounts disks"))
    assert run("--only", canary.IGNORED) == DONE
    shown = capsys.readouterr().out
    assert "0 of 0 found" in shown
    assert "cannot be hunted here: syncs-ignored: power: only root mounts disks" in shown


def test_a_canary_whose_run_cannot_be_kept_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "find_spec", lambda name: None)
    hunted = hunt_bug(canary.IGNORED)
    assert hunted.found is None
    assert "pip install -e '.[chaos]'" in hunted.words

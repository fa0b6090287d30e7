"""The doctor tries what can be broken, says what each nemesis lacks, and leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_lite.command import chaos
from jepsen_lite.nemeses import capabilities, ledger
from jepsen_lite.nemeses.capabilities import CAPABILITIES, Found
from jepsen_lite.nemeses.kinds import KINDS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ledger.state_directory()


def mounted(within: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(within) in line]


def test_every_need_is_a_capability_that_can_be_tried() -> None:
    assert capabilities.needed(KINDS) <= CAPABILITIES.keys()


def test_the_doctor_answers_for_every_nemesis_and_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(chaos, ["doctor", "--json"])
    told = json.loads(result.output)
    assert [row["name"] for row in told["nemeses"]] == list(KINDS)
    assert [row["name"] for row in told["capabilities"]] == list(CAPABILITIES)
    always = {row["name"]: row["is_on"] for row in told["nemeses"]}
    assert all(always[name] for name in ("kill", "pause", "partition", "isolate-leader", "one-way", "bit-rot", "torn"))
    assert not mounted(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"state"}
    assert not home.exists() or not list(home.iterdir())


def test_the_doctor_says_what_is_off_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = CliRunner().invoke(chaos, ["doctor"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    place = next(place for place, line in enumerate(lines) if line.split()[:2] == ["off", "disk-error"])
    assert lines[place + 1].split("needs ")[1].startswith("strace: strace is not installed; on Debian: apt-get install strace")
    assert not any(line.split()[:2] == ["off", "kill"] for line in lines)


def test_a_nemesis_is_off_if_anything_that_it_needs_is() -> None:
    found = [Found("links", True, "", ""), Found("strace", False, "", "ptrace: not permitted", "as root")]
    standings = {standing.name: standing for standing in capabilities.standings(found)}
    assert standings["disk-error"].lacks == ("strace",)
    assert standings["disk-error"].install == "as root"
    assert {name for name, standing in standings.items() if not standing.is_on} == {
        name for name, kind in KINDS.items() if "strace" in kind.needs
    }

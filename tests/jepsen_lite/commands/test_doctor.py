"""The doctor tests the means of breaking things, names what each nemesis lacks, and leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_lite.command import chaos
from jepsen_lite.faults import capabilities
from jepsen_lite.faults.capabilities import CAPABILITIES, ProbeResult
from jepsen_lite.faults.kinds import KINDS

pytestmark = pytest.mark.usefixtures("home")


def mounted(within: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(within) in line]


def test_every_need_is_a_capability_that_can_be_tried() -> None:
    assert capabilities.needed(KINDS) <= CAPABILITIES.keys()


def test_the_doctor_answers_for_every_nemesis_and_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(chaos, ["doctor", "--json"])
    document = json.loads(result.output)
    assert [row["name"] for row in document["nemeses"]] == list(KINDS)
    assert [row["name"] for row in document["capabilities"]] == list(CAPABILITIES)
    assert not any("No module named" in row["detail"] for row in document["capabilities"]), "a module is missing"
    always = {row["name"]: row["is_on"] for row in document["nemeses"]}
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
    place = lines.index("Back ends that break links (--net):")
    assert lines[place + 1].split()[:2] == ["on", "links"]
    assert lines[place + 2].split()[:2] == ["off", "netns"]
    assert "needs netns: " in lines[place + 3] and "apt-get install iproute2" in lines[place + 3]


def test_a_nemesis_is_off_if_anything_that_it_needs_is() -> None:
    found = [ProbeResult("links", True, "", ""), ProbeResult("strace", False, "", "ptrace: not permitted", "as root")]
    nemesis_states = {state.name: state for state in capabilities.nemesis_states(found)}
    assert nemesis_states["disk-error"].lacks == ("strace",)
    assert nemesis_states["disk-error"].install == "as root"
    assert {name for name, state in nemesis_states.items() if not state.is_on} == {
        name for name, kind in KINDS.items() if "strace" in kind.needs
    }


def test_links_can_be_broken_by_what_is_on() -> None:
    found = [
        ProbeResult("links", True, "", ""),
        ProbeResult("netns", False, "", "ip is not installed", "as root"),
    ]
    nets = {state.name: state.nets for state in capabilities.nemesis_states(found)}
    assert (nets["partition"], nets["slow"], nets["kill"]) == (("links",), ("links",), ())
    found[1] = ProbeResult("netns", True, "", "")
    nets = {state.name: state.nets for state in capabilities.nemesis_states(found)}
    assert (nets["partition"], nets["kill"]) == (("links", "netns"), ())

"""Crashes while a log is compacted: every image that a crash can leave starts with the right records."""

from __future__ import annotations

import pytest

from jepsen_lite.mutants.rooms import hunt_bug
from kraftlab.simulation.crash_images.compaction import BUGS, EVERY_CRASH, Run, judge, record
from kraftlab.simulation.crash_images.recovery import KILL

pytestmark = pytest.mark.usefixtures("disks_without_waiting")

SHOWN_SOON = ("C3", "C5", "C9")
"""Bugs that one of the first images of kills shows."""


@pytest.fixture(scope="module")
def run() -> Run:
    return record()


def test_a_kill_at_each_step_leaves_every_record_that_counts(run: Run) -> None:
    assert judge(run, [KILL], limit=1) == []


@pytest.mark.nightly
@pytest.mark.parametrize("crash", EVERY_CRASH)
def test_a_crash_of_each_kind_at_each_step_leaves_every_record_that_counts(run: Run, crash: str) -> None:
    assert judge(run, [crash], limit=1) == []


@pytest.mark.parametrize("bug", SHOWN_SOON)
def test_images_of_kills_show_a_planted_bug(bug: str) -> None:
    finding = hunt_bug(bug)
    assert finding.found and finding.rule == KILL, finding


@pytest.mark.nightly
@pytest.mark.parametrize("bug", BUGS)
def test_the_images_show_each_planted_bug(bug: str) -> None:
    assert hunt_bug(bug).found

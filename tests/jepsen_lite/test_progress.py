"""The progress lines of a run."""

from __future__ import annotations

import pytest

from jepsen_lite.history import Op
from jepsen_lite.progress import Progress
from jepsen_lite.worlds.world import RunStatus


@pytest.fixture
def written():
    return []


def ended(progress, *outcomes):
    for outcome in outcomes:
        progress.ended(Op(index=0, process=0, f="get", outcome=outcome, invoked_ns=0, ended_ns=0))


def status(phase, seconds, **more):
    return RunStatus(phase, int(seconds * 1e9), **more)


def test_a_log_gets_a_line_for_each_phase_and_one_now_and_then(written):
    progress = Progress("topics", is_terminal=False, write=written.append)
    progress.report(status("clients", 0))
    ended(progress, "ok", "ok", "fail", "info")
    progress.report(status("clients", 1))
    progress.report(status("clients", 5, leader=3001, epoch=4, lag=7, down=(2, 3000), faults=("kill",)))
    progress.report(status("heal", 5.5))
    progress.done()
    assert written == [
        "topics clients   0.0 s |   -/s: ok 0 fail 0 info 0\n",
        "topics clients   5.0 s |   1/s: ok 2 fail 1 info 1 | leader 3001 (epoch 4) lag 7 | silent 2,3000 | faults kill\n",
        "topics heal      5.5 s |   0/s: ok 0 fail 0 info 0\n",
    ]


def test_a_terminal_keeps_one_line_whose_rests_are_wiped(written):
    progress = Progress("topics", is_terminal=True, write=written.append)
    progress.report(status("clients", 1, leader=-1, epoch=2))
    ended(progress, "ok")
    progress.report(status("clients", 2))
    progress.done()
    first, second, last = written
    assert first == "\rtopics clients   1.0 s |   0/s: ok 0 fail 0 info 0 | leader none (epoch 2) lag 0"
    assert second.rstrip() == "\rtopics clients   2.0 s |   1/s: ok 1 fail 0 info 0" and len(second) == len(first)
    assert last == "\n"

"""Runs on real processes whose nodes end by themselves, and whose clusters do not recover; no process is started."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jepsen_lite.fault_plan import FaultPlan
from jepsen_lite.faults.ledger import MARK
from jepsen_lite.workload import Options, Workload
from jepsen_lite.worlds import real
from jepsen_lite.worlds.node_exits import ENDS_WITHIN_NS, NodeExits, own_exits
from kraftlab.checking.facts import Strike
from kraftlab.lab import ClusterError


class Cluster:
    """The answers of a LocalCluster, of nodes that are only numbers."""

    controller_ids, broker_ids = (3000,), (0, 1)

    def __init__(self):
        self.codes, self.fault, self.waits = {}, None, 0

    def wait_ready(self, timeout_s):
        self.waits += 1
        if self.fault is not None:
            raise self.fault

    def exited(self):
        return dict(self.codes)

    def last_words(self, node_id):
        return f"node {node_id} says why"


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def exits(cluster):
    cluster.now_ns = 100
    return NodeExits(cluster, lambda: cluster.now_ns)


STRIKE = Strike(kind="disk-error", begin_ns=50, end_ns=90, nodes=(3000,))


async def test_a_cluster_that_is_ready_lacks_nothing(cluster):
    assert (await real.lacking(cluster, 30), cluster.waits) == ("", 1)


async def test_a_cluster_that_does_not_recover_reports_its_state(cluster, monkeypatch):
    times = iter(range(0, 1_000, 2))
    monkeypatch.setattr(real.trio, "current_time", lambda: next(times))
    cluster.fault = ClusterError("the cluster is not ready after 2 s (no controller leads); see /tmp/gone/logs")
    assert (await real.lacking(cluster, 30), cluster.waits) == ("no controller leads, after 30 s", 14)


async def test_one_whose_node_has_ended_is_not_waited_for_any_longer(cluster):
    cluster.fault, cluster.codes = ClusterError("broker-1 ended with code 1: node 1 says why"), {1: 1}
    assert (await real.lacking(cluster, 30), cluster.waits) == ("broker-1 ended with code 1: node 1 says why", 1)


def test_nodes_that_ended_by_themselves_are_noted(exits, cluster):
    cluster.codes = {0: 1, 3000: -9}
    exits.collect(at_rest=False)
    assert own_exits(exits.found, []) == {0: "exit code 1: node 0 says why"}, "a kill -9 may be one of ours, still under way"
    exits.collect(at_rest=True)
    assert set(own_exits(exits.found, [])) == {0, 3000}


def test_a_fault_that_ended_a_node_excuses_its_end_once(exits, cluster):
    for cluster.now_ns, cluster.codes in ((60, {3000: 1, 0: 1}), (70, {3000: 1, 0: 1}), (80, {0: 1})):
        exits.collect(at_rest=False)
    assert set(own_exits(exits.found, [STRIKE])) == {0}
    cluster.now_ns, cluster.codes = ENDS_WITHIN_NS + 91, {3000: 1}  # it was started again
    exits.collect(at_rest=False)
    assert [at_ns for node, at_ns, _ in exits.found if node == 3000] == [60, ENDS_WITHIN_NS + 91]
    assert set(own_exits(exits.found, [STRIKE])) == {0, 3000}


TERMINATED = """
import os, signal, sys
from types import SimpleNamespace
from jepsen_lite.fault_plan import FaultPlan
from jepsen_lite.workload import Options
from jepsen_lite.worlds import real

def ended_cluster(data, *_, **__):
    (data / "file").touch()
    os.kill(os.getpid(), signal.SIGTERM)
    print("went on")

real._needs = lambda plan, net: frozenset()
real.probe = lambda needs: ()
real.LocalCluster = ended_cluster
workload = SimpleNamespace(properties={})
directory = SimpleNamespace(write_plan=lambda plan: None)
try:
    real.play(real.Assignment(workload, Options(), (), FaultPlan(seed="1"), directory, None))
except KeyboardInterrupt:
    print("as Ctrl-C", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


def test_a_run_that_is_terminated_before_it_begins_leaves_nothing(tmp_path):
    where = {"XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", TERMINATED]
    done = subprocess.run(words, env=os.environ | where, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "as Ctrl-C True\n")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.name.startswith(MARK)]


@pytest.fixture
async def run(cluster):
    listener = SimpleNamespace(ended=lambda op: None, report=lambda status: None)
    workload = Workload("made-up", lambda *_: None, lambda _: (), None, lambda _: ())
    assignment = SimpleNamespace(workload=workload, options=Options(), listener=listener)
    made = real.RealRun(assignment, cluster, FaultPlan(seed="1"), None)
    made.drive = SimpleNamespace(now_ns=lambda: 100)
    return made


class Tail:
    """A log that is known up to `end`; `leads`: there is a leader that has no more."""

    def __init__(self, end, *, leads):
        self.end, self._leads, self.ends_at = end, leads, end

    def advance(self, leader, epoch):
        if self._leads:
            self.ends_at = self.end
        return False

    def log(self):
        return f"up to {self.end}"


@pytest.mark.parametrize(("leads", "log"), [(True, "up to 7"), (False, None)])
async def test_a_log_with_an_unknown_end_is_not_judged(run, monkeypatch, leads, log):
    """Acknowledged records beyond the end are lost if a leader reports the end, and otherwise only unread."""
    monkeypatch.setattr(real, "LOG_WITHIN_S", 0.1)
    run.tail, run.tell = Tail(7, leads=leads), lambda: None
    run.interpreter.ops.append(SimpleNamespace(offset=9))
    assert await run.wind_up() == log
    assert run.not_ready == "the committed log could not be read to its end within 0.1 s"


@pytest.mark.parametrize(("cut_short", "error"), [("", ClusterError), ("SIGINT in the phase 'start'", KeyboardInterrupt)])
async def test_what_fails_after_ctrl_c_is_told_as_ctrl_c(run, cluster, monkeypatch, cut_short, error):
    """A failure of the harness would not stop the next run."""

    async def phases():
        run.cut_short = cut_short
        raise ClusterError("no node has come up")

    monkeypatch.setattr(run, "run_phases", phases)
    for name in ("Nodes", "LeaderFinder", "LogTail"):
        monkeypatch.setattr(real, name, lambda *_: SimpleNamespace(close=lambda: None, voters=None))
    cluster.node = lambda node_id: SimpleNamespace(listens=None)
    cluster.metadata_dir, cluster.cluster_id, cluster.security = str, "", None
    with pytest.raises(error):
        await run.play()

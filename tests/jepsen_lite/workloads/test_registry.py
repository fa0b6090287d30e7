"""The registry of workloads, and the soak that combines several."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jepsen_lite.workloads import WORKLOADS, UnknownWorkload, workload_named
from jepsen_lite.worlds.world import WORLDS


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_a_name_and_a_summary(name):
    workload = workload_named(name)
    assert workload.name == name
    assert workload.summary
    assert workload.not_in.keys() < set(WORLDS) and all(workload.not_in.values())


def test_an_unknown_workload_is_answered_with_the_known_ones():
    with pytest.raises(UnknownWorkload) as caught:
        workload_named("regsters")
    assert "'regsters'" in str(caught.value)
    assert all(name in str(caught.value) for name in WORKLOADS)


def test_the_registry_imports_no_workload_before_it_is_wanted():
    code = "import sys, jepsen_lite.workloads as w; print([n for n in w.NAMES if 'jepsen_lite.workloads.' + n in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_a_soak_of_an_honest_cluster_is_judged_part_by_part(played):
    _, run, verdicts = played("soak", rate=300.0)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is False} == {}
    parts = {op.f.partition(".")[0] for op in run.history}
    assert parts == {name.partition(":")[0] for name in verdicts}
    assert all(any(name.startswith(part) and verdict.valid is True for name, verdict in verdicts.items()) for part in parts)


def test_a_lie_about_one_part_is_seen_in_that_part_alone(played):
    _, _, verdicts = played("soak", "block again", rate=300.0)
    parts = {name.partition(":")[0] for name, verdict in verdicts.items() if verdict.valid is False}
    assert "producer-ids" in parts
    assert parts <= {"producer-ids", "exactly-once", "brokers"}

"""franz-go's own tests of its client, on a fresh cluster: once in peace, and once while a node is killed every few seconds.

Transactions are not served, so their test is left out; tests of what the cluster does not offer (share groups, SASL) skip
themselves. The suite compares every record that it reads with what it wrote, in groups that members join and leave all the time.

A member whose coordinator was just killed may have to join again: it cannot connect for a while, or the next coordinator has
never heard of the generation that was about to begin. franz-go reports that to its caller, and the suite counts each report as a
failure. So such an end of a group, and no other failure, is allowed while nodes die; other groups still have to read everything.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from kraftlab.lab.local import LocalCluster

from .conftest import Suite

pytestmark = pytest.mark.cluster

RECORDS = 20_000
"""Records that groups read and write."""
TIMEOUT_S = 1800
"""Far more than two idle processors need."""
CALM_S = 3.0, 7.0
DOWN_S = 1.0, 3.0
"""Time between two kills, and until the node starts again."""
GROUPS = "TestGroupETL"
"""The test whose groups pass records on. It has a part for each way to assign partitions."""
GIVEN_UP = re.compile(r"^ +\w+\.go:\d+: poll got unexpected errs: \[\{.*unable to join group session: .*\}\]$", re.M)
"""Reason of a failed part: a member met a dead or a new coordinator."""

Meanwhile = Callable[[LocalCluster, "subprocess.Popen[str]"], None]


def in_peace(cluster: LocalCluster, suite: subprocess.Popen[str]) -> None:
    suite.wait(TIMEOUT_S)


def while_nodes_die(cluster: LocalCluster, suite: subprocess.Popen[str]) -> None:
    """Kill one node after the other, controllers and brokers, until the suite ends."""
    rng = random.Random(7)
    nodes = [node.node_id for node in cluster.plan.nodes]
    kills = 0
    while not has_ended(suite, rng.uniform(*CALM_S)):
        assert cluster.exited() == {}, "a node has ended by itself"
        node = rng.choice(nodes)
        cluster.kill_node(node)
        kills += 1
        has_ended(suite, rng.uniform(*DOWN_S))
        cluster.start_node(node)
    assert kills > 3, "the suite has ended too early to say anything"


def has_ended(suite: subprocess.Popen[str], within_s: float) -> bool:
    try:
        suite.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.parametrize("meanwhile", [in_peace, while_nodes_die])
def test_franz_gos_own_tests_pass(kgo_suite: Suite, meanwhile: Meanwhile, tmp_path: Path) -> None:
    log = tmp_path / "kgo.log"
    with LocalCluster(tmp_path / "lab", 3, 4, 2) as cluster, open(log, "w") as output:
        suite = started(kgo_suite, cluster, output)
        try:
            meanwhile(cluster, suite)
        finally:
            suite.kill()
            suite.wait()
        assert cluster.exited() == {}, "a node has ended by itself"
        logs = {node.name: cluster.log_path(node.node_id).read_text() for node in cluster.plan.nodes}
    assert [f"{name}: {line}" for name, text in logs.items() for line in text.splitlines() if " ERROR " in line] == []
    said = log.read_text()
    assert "\npanic: " not in said, f"the suite has ended early; see {log}"
    given_up = len(GIVEN_UP.findall(said)) if meanwhile is while_nodes_die else 0
    failed = names_with("FAIL", said)
    passed = names_with("PASS", said)
    if given_up and len(failed) == given_up + 1 and all(name.split("/")[0] == GROUPS for name in failed):
        assert any(name.startswith(f"{GROUPS}/") for name in passed), f"every group was given up; see {log}"
    else:
        assert (failed, suite.returncode) == ([], 0), f"see {log}"
        assert GROUPS in passed
    assert "TestClient_Produce" in passed


def names_with(verdict: str, said: str) -> list[str]:
    return sorted(set(re.findall(rf"^\s*--- {verdict}: (\S+)", said, re.MULTILINE)))


def started(suite: Suite, cluster: LocalCluster, output: TextIO) -> subprocess.Popen[str]:
    settings = {"KGO_SEEDS": cluster.kafka_bootstrap_servers, "KGO_TEST_RF": "3", "KGO_TEST_RECORDS": str(RECORDS)}
    options = ("-test.v", "-test.skip", "TestTxnEtl", "-test.timeout", f"{TIMEOUT_S - 30}s")
    return subprocess.Popen(
        [str(suite.program), *options],
        cwd=suite.directory,
        env={**os.environ, **settings},
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )

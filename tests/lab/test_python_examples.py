"""The examples of docs/reference/python.md, played in their order on one cluster."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

from kraftlab.client import AdminClient
from kraftlab.lab import LocalCluster
from tests.helpers.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "docs" / "reference" / "examples.py"
CLUSTER = (3, 3)
DOWN = 2
"""The broker that an example unregisters."""


def test_every_method_has_an_example_that_works(cluster: LocalCluster) -> None:
    examples = {name: value for name, value in runpy.run_path(str(EXAMPLES)).items() if inspect.isfunction(value)}
    methods = {name for name, value in inspect.getmembers(AdminClient, inspect.isfunction) if name[0] != "_"}
    played = {name: examples[name] for name in examples if name in methods}
    assert played.keys() == methods
    cluster.stop_node(DOWN)
    for name, example in played.items():
        with cluster.admin() as client:
            if name == "add_raft_voter":
                wait_until(lambda: 3001 in {each.replica_id for each in client.describe_quorum().observers}, "3001 is back")
            example(client)

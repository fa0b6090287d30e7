"""Fixtures for tests of anything that talks to a cluster: `kraftlab_cluster`, `nemesis`, `check`.

    def test_my_tool_survives(kraftlab_cluster, nemesis, check):
        with nemesis.kill("leader"):
            check.call("set", "x", 1, my_tool.set, "x", 1)
        check(Linearizable(lambda key: Register()))

pytest loads this module wherever kraftlab is installed, so it imports nothing else until a fixture is requested. `check` needs
the packages of the extra `chaos` only to keep a run that is not valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kraftlab.lab import LocalCluster

    from .testing import Check, Nemesis, Story

SCOPE, CONTROLLERS, BROKERS, RUNS = "kraftlab_scope", "kraftlab_controllers", "kraftlab_brokers", "kraftlab_runs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        SCOPE, "Scope of the fixture kraftlab_cluster: function, class, module, package or session.", default="function"
    )
    parser.addini(CONTROLLERS, "Number of controllers of the fixture kraftlab_cluster.", default="3")
    parser.addini(BROKERS, "Number of brokers of the fixture kraftlab_cluster.", default="2")
    parser.addini(
        RUNS, "Directory of runs of the fixture check that are not valid; default: next to the test's tmp_path.", default=""
    )


def _scope(fixture_name: str, config: pytest.Config) -> str:
    return str(config.getini(SCOPE))


@pytest.fixture(scope="session")
def kraftlab_properties() -> Mapping[str, str]:
    """Keys of server.properties for all nodes of `kraftlab_cluster`. Override this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def kraftlab_secure() -> bool:
    """True for a `kraftlab_cluster` with TLS and logins. Override this fixture to get one."""
    return False


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def kraftlab_cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kraftlab_properties: Mapping[str, str],
    kraftlab_secure: bool,
) -> Iterator[LocalCluster]:
    """A LocalCluster that is ready and can be broken. The test fails if a node ends by itself."""
    from kraftlab.lab import LocalCluster

    cluster = LocalCluster(
        tmp_path_factory.mktemp("kraftlab"),
        controllers=int(request.config.getini(CONTROLLERS)),
        brokers=int(request.config.getini(BROKERS)),
        overrides=kraftlab_properties,
        allow_chaos=True,
        secure=kraftlab_secure,
    )
    with cluster:
        yield cluster
        ended = [f"{cluster.node(node_id).name}: {cluster.last_words(node_id)}" for node_id in cluster.exited()]
    if ended:
        pytest.fail("nodes ended by themselves: " + "; ".join(ended), pytrace=False)


@pytest.fixture
def kraftlab_story(request: pytest.FixtureRequest) -> Story:
    """The clock and the record that `nemesis` and `check` share."""
    from .testing import Story

    return Story(request.node.name)


@pytest.fixture
def nemesis(kraftlab_cluster: LocalCluster, kraftlab_story: Story) -> Iterator[Nemesis]:
    """Break `kraftlab_cluster`. Faults that a test leaves in force are undone after it."""
    from .testing import Nemesis

    breaks = Nemesis(kraftlab_cluster, kraftlab_story)
    yield breaks
    breaks.close()


@pytest.fixture
def check(request: pytest.FixtureRequest, tmp_path: Path, kraftlab_story: Story) -> Check:
    """Record calls and run checkers over them."""
    from .testing import Check

    runs = request.config.getini(RUNS)
    return Check(kraftlab_story, request.config.rootpath / runs if runs else tmp_path / "runs")

"""What `kraftlab up` says while its cluster runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraftlab.cli import up


class Cluster:
    """Stands in for one whose broker ends, is started again, and ends again."""

    def __init__(self) -> None:
        self.seen = [{1: 3}, {1: 3}, {}, {1: 3}, {1: 3, 2: 9}]

    def exited(self) -> dict[int, int]:
        return self.seen.pop(0)

    def node(self, node_id: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"broker-{node_id}")

    def last_words(self, node_id: int) -> str:
        return "no space"

    def wait(self, timeout_s: float) -> bool:
        return not self.seen


def test_a_node_that_ends_again_is_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    up._watch(cluster, cluster)  # type: ignore[arg-type]
    assert [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()] == ["broker-1", "broker-1", "broker-2"]

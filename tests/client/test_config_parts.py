"""Nodes of configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client.config_parts import in_parts


def asked(*resources: tuple[int, str]) -> tuple[list[tuple[int | None, list[str]]], list[str]]:
    """Return (requests by node, names in the answer)."""
    calls: list[tuple[int | None, list[str]]] = []

    def ask(node: int | None, part: Sequence[Any]) -> pb.DescribeConfigsResponse:
        calls.append((node, [resource.resource_name for resource in part]))
        answers = [pb.DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name) for r in part]
        return pb.DescribeConfigsResponse(results=reversed(answers))

    named = [pb.DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in resources]
    response = in_parts(named, ask, lambda response: response.results)
    return calls, [result.resource_name for result in response.results]


def test_brokers_are_asked_about_themselves_and_anybody_about_the_rest() -> None:
    calls, answered = asked((2, "t"), (4, "1"), (4, ""), (8, "2"), (4, "1"), (4, "abc"))
    assert calls == [(None, ["t", "", "abc"]), (1, ["1", "1"]), (2, ["2"])]
    assert answered == ["t", "1", "", "2", "1", "abc"]


def test_one_call_does_where_one_node_has_all_answers() -> None:
    assert asked((2, "t"), (32, "g"))[0] == [(None, ["t", "g"])]
    assert asked((4, "1"))[0] == [(1, ["1"])]
    assert asked()[0] == [(None, [])]

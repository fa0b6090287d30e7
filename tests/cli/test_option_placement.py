"""The servers may be given on either side of a subcommand's name."""

from __future__ import annotations

import click
import pytest

from kraftlab.cli.features.command import features
from kraftlab.cli.lab.cluster_command import cluster
from kraftlab.cli.metadata.command import metadata
from kraftlab.cli.quorum.command import metadata_quorum

AT = "127.0.0.1:9092"


def placed(group: click.Group, *arguments: str) -> list[str]:
    return group.placed(click.Context(group), list(arguments))  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("group", "given", "taken_as"),
    [
        (features, ("--bootstrap-server", AT, "describe"), ("describe", "--bootstrap-server", AT)),
        (features, ("describe", "--bootstrap-server", AT), ("describe", "--bootstrap-server", AT)),
        (metadata_quorum, ("describe", "--bootstrap-server", AT, "--status"), ("--bootstrap-server", AT, "describe", "--status")),
        (metadata_quorum, ("--bootstrap-server", AT, "describe"), ("--bootstrap-server", AT, "describe")),
        (metadata_quorum, ("describe", f"--bootstrap-controller={AT}"), (f"--bootstrap-controller={AT}", "describe")),
        (cluster, ("--user", "bob", "cluster-id", "--json"), ("cluster-id", "--user", "bob", "--json")),
        (metadata, ("--bootstrap-server", AT, "at", "topics"), ("at", "--bootstrap-server", AT, "topics")),
        (features, ("--bootstrap-server", AT), ("--bootstrap-server", AT)),
        (features, ("--bootstrap-server", AT, "nothing"), ("--bootstrap-server", AT, "nothing")),
        (features, ("--bootstrap-server",), ("--bootstrap-server",)),
    ],
)
def test_an_option_is_taken_on_both_sides(group: click.Group, given: tuple[str, ...], taken_as: tuple[str, ...]) -> None:
    assert placed(group, *given) == [*taken_as]

"""Options that several commands of the pipeline have."""

from __future__ import annotations

import re

import click

from kraftlab.cli.connection import default_servers, named_servers

from ..errors import WrongUse

lake_option = click.option(
    "--lake", "lake_uri", metavar="URI", required=True, help="The lake: a directory, or a URI such as s3://bucket/lake."
)


class OffsetRange(click.ParamType[tuple[int, int]]):
    """LO-HI: from LO on, up to but not HI."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d+)-(\d+)", str(value))
        if found is None or int(found.group(1)) >= int(found.group(2)):
            self.fail(f"invalid range {value!r}: expected LO-HI with LO below HI, e.g. 0-5000", param, ctx)
        return int(found.group(1)), int(found.group(2))


def cluster_to_ask() -> str:
    """Return the endpoints of the cluster that the options name, otherwise of the newest that is up here. WrongUse if none is."""
    servers = named_servers() or default_servers()
    if servers is None:
        raise WrongUse("no cluster is up on this machine; give --bootstrap-server, or a file with --input")
    return servers

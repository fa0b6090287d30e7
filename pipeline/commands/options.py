"""Options that several commands of the pipeline have."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from kraftlab.cli.connection import default_servers, named_servers

from ..errors import Fault, WrongUse

if TYPE_CHECKING:
    from ..lake.commits import Lake

lake_option = click.option(
    "--lake", "lake_uri", metavar="URI", required=True, help="The lake: a directory, or a URI such as s3://bucket/lake."
)

version_option = click.option(
    "--version", metavar="N", type=click.IntRange(min=0), help="Read this version of the table; other tables as of its time."
)
as_of_option = click.option(
    "--as-of", metavar="TIME", help="Read the lake as it was at this time: 2026-11-21T14:05:00Z or milliseconds since 1970."
)


def lake_as_of(lake: Lake, tables: Collection[str], version: int | None, as_of: str | None) -> None:
    """Let a lake be read as of the values of --version and --as-of. `tables` are those that the command reads; --version is a
    version of the first one. WrongUse.
    """
    from .gold_rows import time_ms

    if version is not None and as_of is not None:
        raise WrongUse("give --version or --as-of, not both")
    if as_of is not None:
        lake.pin_time(time_ms(as_of))
    elif version is not None:
        first, *others = tables
        lake.pin(first, version)
        if others:
            lake.pin_time(lake.committed_ms(first), others)


class OffsetRange(click.ParamType[tuple[int, int]]):
    """LO-HI: from LO on, up to but not HI."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d+)-(\d+)", str(value))
        if found is None or int(found.group(1)) >= int(found.group(2)):
            self.fail(f"invalid range {value!r}: expected LO-HI with LO below HI, e.g. 0-5000", param, ctx)
        return int(found.group(1)), int(found.group(2))


def cluster_to_ask() -> str:
    """Return the endpoints of the cluster that the options name, otherwise of the newest running cluster. Fault if none is."""
    servers = named_servers() or default_servers()
    if servers is None:
        raise Fault("no cluster is up on this machine; give --bootstrap-server, or a file with --input")
    return servers

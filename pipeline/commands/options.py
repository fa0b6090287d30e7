"""Options that several commands of the pipeline have."""

from __future__ import annotations

import re

import click

lake_option = click.option(
    "--lake", "lake_uri", metavar="URI", required=True, help="The lake: a directory, or a URI such as s3://bucket/lake."
)


class OffsetRange(click.ParamType[tuple[int, int]]):
    """LO-HI: from LO on, up to but not HI."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d+)-(\d+)", str(value))
        if found is None or int(found.group(1)) >= int(found.group(2)):
            self.fail(f"{value!r} is no range of offsets; write LO-HI with LO below HI, as 0-5000", param, ctx)
        return int(found.group(1)), int(found.group(2))

"""`kraftlab metadata`: the cluster's metadata at any past offset or time, and the changes between two moments."""

from __future__ import annotations

import click

from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.config.secrets import is_secret
from kraftlab.metadata.difference import BOOKKEEPING, change_documents, change_lines, changes_of, image_differences
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.tree import ALIASES, Directory, Node, image_tree, plain_document
from kraftlab.node.history import NEWEST, Moment

from ..option_placement import AddressedGroup
from ..output import CommandFailed, Output, json_option
from .sources import SnapshotSource, Source, moment_options, open_source, parse_moment, parse_point, source_options
from .text import (
    batch_documents,
    batch_lines,
    boundary_line,
    certainty,
    node_lines,
    place_document,
    place_text,
    subtree,
    warnings,
)

_offset, _time = moment_options


@click.group(
    "metadata",
    cls=AddressedGroup,
    epilog="""\b
Examples:
  kraftlab metadata at --time 2026-11-21T17:06:35Z --metadata-dir /var/lib/kraftlab/metadata
  kraftlab metadata at --offset 4711 topics/byName/orders
  kraftlab metadata diff --from 4000 --to newest --records --metadata-dir /var/lib/kraftlab/metadata""",
)
def metadata() -> None:
    """Show past states of the metadata, from the log and snapshots of a running, stopped or broken node."""


@metadata.command(
    "at",
    short_help="Show the metadata at an offset or time.",
    epilog="""\b
Examples:
  kraftlab metadata at --offset 4711 --metadata-dir /var/lib/kraftlab/metadata
  kraftlab metadata at --time 2026-11-21T17:06:35Z --node 3001 cluster/brokers
  kraftlab metadata at --metadata-dir /var/lib/kraftlab/metadata --json

\b
Shown is the state after the last batch that ends at or before the offset, or was appended at or before the time.
Exit code 1 if the log cannot be read that far; the readable part is shown.""",
)
@_offset
@_time
@source_options
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@json_option
def at(
    offset: int | None,
    time: str | None,
    metadata_dir: str | None,
    node_id: int | None,
    paths: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show all metadata, or the parts at PATHs (as in the metadata shell, without /image); by default the newest state."""
    moment = parse_moment(offset, time)
    out = Output(as_json)
    with open_source(metadata_dir, node_id) as source:
        image, stopped, notes = source.at(moment)
        committed = source.known_committed()
        tree = image_tree(image, is_secret)
        try:
            shown = [(path, subtree(tree, path)) for path in paths] or [
                (name, _once(name, node)) for name, node in tree.items() if name != "provenance"
            ]
        except KeyError as error:
            raise CommandFailed(f"Error: at {place_text(image.provenance)} {error.args[0]}") from None
        out.lines([f"Metadata of {source.name} at {place_text(image.provenance)}"])
        out.lines(warnings(image, stopped, notes, committed))
        out.lines(_boundary_lines(source, moment, image))
        for path, node in shown:
            out.lines(node_lines(path.removeprefix("/image"), node))
        out.result(
            {
                **place_document(image.provenance),
                "is_committed": certainty(image.provenance.offset, committed),
                "not_readable": [*notes, *([stopped] if stopped else [])],
                "image": {path: plain_document(node) for path, node in shown},
            }
        )
    return FAILED if stopped is not None else DONE


def _boundary_lines(source: Source, asked: Moment, image: MetadataImage) -> list[str]:
    if asked.offset is None or image.provenance.offset >= asked.offset:
        return []
    return [boundary_line(asked.offset, image.provenance, source.at(NEWEST).image.provenance)]


def _once(path: str, node: Node) -> Node:
    """Return the part without aliases."""
    if not isinstance(node, Directory):
        return node
    kept = [name for name in node.names() if (path, name) not in ALIASES]
    return Directory(lambda: kept, node.get)


@metadata.command(
    "diff",
    short_help="Show the changes between two moments.",
    epilog="""\b
Examples:
  kraftlab metadata diff --from 4000 --to 4711 --metadata-dir /var/lib/kraftlab/metadata
  kraftlab metadata diff --from 2026-11-21T17:00:00Z --to newest --records
  kraftlab metadata diff --from A/00000000000000004000-0000000003.checkpoint --to B/00000000000000004711-0000000003.checkpoint

\b
A moment is an offset, newest, a time (2026-11-21T17:06:35Z or @MILLISECONDS), or a snapshot file.
+ added, - removed, ~ changed. Secrets are compared and not shown.""",
)
@click.option("--from", "start", required=True, metavar="MOMENT", help="The earlier moment; see below.")
@click.option("--to", "end", default="newest", show_default=True, metavar="MOMENT", help="The later moment.")
@source_options
@click.option("--records", "with_records", is_flag=True, help="Also print the records between the moments.")
@click.option("--all", "with_bookkeeping", is_flag=True, help="Also compare the saved answers to requests that carry an id.")
@json_option
def diff(
    start: str,
    end: str,
    metadata_dir: str | None,
    node_id: int | None,
    with_records: bool,
    with_bookkeeping: bool,
    as_json: bool,
) -> int:
    """Compare the metadata of two moments: topics, partitions, brokers, configs, ACLs, quotas, features, moves, and the rest."""
    points = parse_point(start), parse_point(end)
    if all(isinstance(point, SnapshotSource) for point in points) and not with_records:
        first, last = points
        assert isinstance(first, SnapshotSource) and isinstance(last, SnapshotSource)
        with open_source(None, None, snapshot=first.name) as source:
            return _diff(source, points, False, with_bookkeeping, as_json)
    with open_source(metadata_dir, node_id) as source:
        return _diff(source, points, with_records, with_bookkeeping, as_json)


def _diff(
    source: Source, points: tuple[Moment | Source, Moment | Source], with_records: bool, with_bookkeeping: bool, as_json: bool
) -> int:
    out = Output(as_json)
    found = [source.at(point) if isinstance(point, Moment) else point.at(Moment()) for point in points]
    before, after = (entry.image for entry in found)
    committed = source.known_committed()
    boundaries = [
        line
        for point, image in zip(points, (before, after), strict=True)
        if isinstance(point, Moment)
        for line in _boundary_lines(source, point, image)
    ]
    faults = dict.fromkeys(line for entry in found for line in warnings(entry.image, entry.stopped, entry.notes, committed))
    out.lines([f"--- {place_text(before.provenance)}", f"+++ {place_text(after.provenance)}", *faults, *boundaries])
    differing = list(image_differences(before, after, is_secret))
    shown = [found for found in differing if with_bookkeeping or found.path[0] != BOOKKEEPING]
    hint = [] if len(shown) == len(differing) else ["Remembered answers to requests differ as well; --all shows them."]
    if as_json:
        changes = list(change_documents(changes_of(iter(shown))))
    else:
        changes = []
        out.lines(list(change_lines(changes_of(iter(shown)))) or ["Nothing differs."])
        out.lines(hint)
    document = {
        "from": place_document(before.provenance),
        "to": place_document(after.provenance),
        "not_readable": list(faults),
        "changes": changes,
    }
    if with_records:
        low, high = sorted((before.provenance.offset, after.provenance.offset))
        entries = list(source.batches(low, high))
        batches = [entry for entry in entries if not isinstance(entry, str)]
        out.lines(["", f"Records from offset {low} to {high}:", *batch_lines(batches, is_secret)])
        out.lines(f"NOT READABLE  {entry}" for entry in entries if isinstance(entry, str))
        document["batches"] = batch_documents(batches, is_secret)
    out.result(document)
    return FAILED if any(entry.stopped is not None for entry in found) else DONE

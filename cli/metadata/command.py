"""`kraftlab metadata`: the cluster's metadata at any past offset or time, and the changes between two moments."""

from __future__ import annotations

import click

from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.config.secrets import is_secret
from kraftlab.metadata.difference import BOOKKEEPING, change_documents, change_lines, changes_of, image_differences
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.tree import ALIASES, Directory, Node, image_tree, plain_document
from kraftlab.node.history import NEWEST, Moment
from kraftlab.node.subject_changes import subject_changes

from ..option_placement import AddressedGroup
from ..output import CommandFailed, Output, WrongUse, json_option
from .history import history_lines, parse_subject
from .sources import (
    EpochEdge,
    SnapshotSource,
    Source,
    moment_of,
    moment_options,
    open_source,
    parse_moment,
    parse_point,
    source_options,
)
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
  kraftlab metadata diff --from 4000 --to newest --records --metadata-dir /var/lib/kraftlab/metadata
  kraftlab metadata history orders-0         # why a partition has these replicas, this leader and this ISR""",
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
    offset: Moment | EpochEdge | None,
    time: str | None,
    metadata_dir: str | None,
    node_id: int | None,
    paths: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show all metadata, or the parts at PATHs (as in the metadata shell, without /image); by default the newest state."""
    point = parse_moment(offset, time)
    out = Output(as_json)
    with open_source(metadata_dir, node_id) as source:
        moment = moment_of(source, point)
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
  kraftlab metadata diff --from epoch:3      # what happened in epoch 3
  kraftlab metadata diff --from A/00000000000000004000-0000000003.checkpoint --to B/00000000000000004711-0000000003.checkpoint

\b
A moment is an offset, newest, a time (2026-11-21T17:06:35Z or @MILLISECONDS), epoch:3 (before the first record of epoch 3),
epoch:3+ (after its last one), or a snapshot file.
+ added, - removed, ~ changed. Secrets are compared and not shown.""",
)
@click.option("--from", "start", required=True, metavar="MOMENT", help="The earlier moment; see below.")
@click.option("--to", "end", metavar="MOMENT", help="The later moment (default: newest; from epoch:N, the end of that epoch).")
@source_options
@click.option("--records", "with_records", is_flag=True, help="Also print the records between the moments.")
@click.option("--all", "with_bookkeeping", is_flag=True, help="Also compare the saved answers to requests that carry an id.")
@json_option
def diff(
    start: str,
    end: str | None,
    metadata_dir: str | None,
    node_id: int | None,
    with_records: bool,
    with_bookkeeping: bool,
    as_json: bool,
) -> int:
    """Compare the metadata of two moments: topics, partitions, brokers, configs, ACLs, quotas, features, moves, and the rest."""
    first, last = points = _points(start, end)
    if isinstance(first, SnapshotSource) and isinstance(last, SnapshotSource) and not with_records:
        with open_source(None, None, snapshot=first.name) as source:
            return _diff(source, points, False, with_bookkeeping, as_json)
    with open_source(metadata_dir, node_id) as source:
        return _diff(source, points, with_records, with_bookkeeping, as_json)


Point = Moment | EpochEdge | SnapshotSource


def _points(start: str, end: str | None) -> tuple[Point, Point]:
    """Return both moments; by default the second one is the newest, or the end of the epoch that the first one names."""
    first = parse_point(start)
    if end is not None:
        return first, parse_point(end)
    return first, EpochEdge(first.epoch, True) if isinstance(first, EpochEdge) and not first.is_end else NEWEST


def _diff(source: Source, ends: tuple[Point, Point], with_records: bool, with_bookkeeping: bool, as_json: bool) -> int:
    out = Output(as_json)
    points = [point if isinstance(point, SnapshotSource) else moment_of(source, point) for point in ends]
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


@metadata.command(
    "history",
    short_help="Show each change of a partition, topic, broker or the quorum.",
    epilog="""\b
Examples:
  kraftlab metadata history orders-4               # each record that changed the partition, with plan and reason
  kraftlab metadata history orders --from epoch:3 --to epoch:3+
  kraftlab metadata history broker 2 --metadata-dir /var/lib/kraftlab/metadata
  kraftlab metadata history quorum --json

\b
A moment is as in `kraftlab metadata diff`, without snapshot files. Names mean topics first, then partitions.
Exit code 1 if the name is nowhere in the log, or the log cannot be read that far.""",
)
@click.argument("words", nargs=-1, required=True, metavar="TOPIC-PARTITION|TOPIC|broker ID|quorum")
@click.option("--from", "start", metavar="MOMENT", help="The earlier moment (default: as far as the log reaches back).")
@click.option("--to", "end", metavar="MOMENT", help="The later moment (default: newest; from epoch:N, the end of that epoch).")
@source_options
@json_option
def history(
    words: tuple[str, ...], start: str | None, end: str | None, metadata_dir: str | None, node_id: int | None, as_json: bool
) -> int:
    """List the records that changed a partition, a topic, a broker's registration, or the leader and voters of the quorum."""
    subject = parse_subject(words)
    first, last = _points(start or "0", end)
    if isinstance(first, SnapshotSource) or isinstance(last, SnapshotSource):
        raise WrongUse("Error: a snapshot has no history; give offsets, times or epochs with --from and --to")
    out = Output(as_json)
    with open_source(metadata_dir, node_id) as source:
        earliest = source.first().offset
        low = source.at(moment_of(source, first) if start else Moment(offset=earliest))
        high = source.at(moment_of(source, last))
        begin, until = low.image.provenance, high.image.provenance
        if begin.offset > until.offset:
            raise WrongUse(f"Error: --from is offset {begin.offset}, after --to at {until.offset}; swap the two")
        batches = list(source.batches(begin.offset, until.offset))
        stopped = [found for found in (*batches, high.stopped) if isinstance(found, str)]
        try:
            changes = subject_changes(subject, low.image, [found for found in batches if not isinstance(found, str)])
        except LookupError as error:
            raise CommandFailed(f"Error: {error.args[0]} between offset {begin.offset} and {until.offset}") from None
        faults = list(dict.fromkeys([*warnings(high.image, None, high.notes, source.known_committed()), *stopped]))
        out.lines([f"{subject} in the metadata log of {source.name}, offsets {begin.offset} to {until.offset}", *faults])
        if begin.offset and begin.offset == earliest:
            out.lines([f"EARLIER       the log begins at offset {begin.offset}, with a snapshot; no earlier changes are known"])
        out.lines(history_lines(changes) if changes else ["Nothing has changed."])
        out.result(
            {
                "subject": str(subject),
                "from": place_document(begin),
                "to": place_document(until),
                "not_readable": stopped,
                "changes": changes,
            }
        )
    return FAILED if stopped else DONE

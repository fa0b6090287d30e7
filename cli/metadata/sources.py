"""Sources of metadata for the time-travel commands: a directory, a snapshot file, or a running node.

A directory is read from the disk, in any state of its node. A running node answers over its admin API from its own disk, with
secrets masked.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import click

from kraftlab.node.history import (
    NEWEST,
    History,
    LoggedBatch,
    Moment,
    NoHistory,
    PastImage,
    Step,
    UnreadableSnapshot,
    read_snapshot,
    while_files_vanish,
)
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage.survey import metadata_partition

from ..connection import caller_options, connect, controller_option, endpoint_of, named_servers, server_option
from ..output import CommandFailed, WrongUse

if TYPE_CHECKING:
    from kraftlab.client import AdminClient
    from kraftlab.common.endpoint import Endpoint

EPOCHS_SHOWN = 20
"""Number of epochs in the error for an unknown one."""

F = TypeVar("F", bound=Callable[..., object])

NOW = "now"
"""The newest moment, also if clocks of nodes are ahead of this machine's."""


class EpochEdge(NamedTuple):
    """The moment before an epoch's first record; with `is_end` after its last one."""

    epoch: int
    is_end: bool


class Source(Protocol):
    """A source of metadata. `name` is for people."""

    name: str

    def at(self, moment: Moment) -> PastImage: ...

    def first(self) -> OffsetAndEpoch:
        """Return the earliest position with an image: (0, 0), or the end of a snapshot."""

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        """Yield the batches between two offsets, and a text at the end if the log cannot be read that far."""

    def known_committed(self) -> int | None:
        """Return the offset below which every record is known to be committed, None if all records of this source are."""


class DirectorySource:
    """A source that reads a metadata.log.dir."""

    def __init__(self, directory: str) -> None:
        self.name = directory
        self._history = History(metadata_partition(directory))

    def at(self, moment: Moment) -> PastImage:
        return self._history.at(moment)

    def first(self) -> OffsetAndEpoch:
        return self._history.first()

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        def steps() -> list[LoggedBatch | str]:
            found = self._history.steps(Moment(offset=start), Moment(offset=end))
            return [step if isinstance(step, str) else _logged(step) for step in found]

        yield from while_files_vanish(steps)

    def known_committed(self) -> int | None:
        return self._history.known_committed()


def _logged(step: Step) -> LoggedBatch:
    header = step.header
    return LoggedBatch(header.base_offset, header.epoch, header.append_time_ms, header.record_count, step.records, step.control)


class SnapshotSource:
    """A source that reads one snapshot file."""

    def __init__(self, path: str) -> None:
        self.name = path

    def at(self, moment: Moment) -> PastImage:
        if moment != NEWEST:
            raise WrongUse(f"Error: {self.name} is one snapshot and has no other moment; leave --offset and --time out")
        found = read_snapshot(self.name)
        assert found is not None, "every snapshot is older than the newest moment"
        return PastImage(found[0], None, ())

    def first(self) -> OffsetAndEpoch:
        raise WrongUse(f"Error: {self.name} is a snapshot, which has no log; name the directory with --metadata-dir")

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        self.first()
        yield from ()

    def known_committed(self) -> int | None:
        return None


class LiveSource:
    """A source that asks a running node."""

    def __init__(self, client: AdminClient, endpoint: Endpoint) -> None:
        self.name = f"node at {endpoint}"
        self._client = client
        self._endpoint = endpoint

    def at(self, moment: Moment) -> PastImage:
        from kraftlab.client.time_travel import image_at

        return PastImage(image_at(self._client, self._endpoint, offset=moment.offset, time_ms=moment.time_ms), None, ())

    def first(self) -> OffsetAndEpoch:
        from kraftlab.admin.v1 import admin_pb2 as pb

        answer = self._client.call_at(self._endpoint, pb.ListSnapshotsResponse, pb.ListSnapshotsRequest())
        oldest = answer.snapshots[0] if answer.snapshots and answer.log_start_offset else pb.MetadataSnapshot()
        return OffsetAndEpoch(oldest.end_offset, oldest.epoch)

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        from kraftlab.client.time_travel import batches

        yield from batches(self._client, self._endpoint, start, end)

    def known_committed(self) -> int | None:
        return None


def source_options(command: F) -> F:
    """Add `--metadata-dir`, `--bootstrap-server`, `--bootstrap-controller`, `--node` and the options of the user."""
    for option in (
        click.option(
            "--node",
            "node_id",
            type=int,
            metavar="ID",
            help="Id of the running node whose log is read (default: the node at the first endpoint).",
        ),
        caller_options,
        controller_option(),
        server_option(),
        click.option(
            "--metadata-dir",
            type=click.Path(),
            metavar="DIR",
            help="Read a node's metadata.log.dir on this machine; the node need not be running.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def open_source(metadata_dir: str | None, node_id: int | None, snapshot: str | None = None) -> Iterator[Source]:
    """Yield the source that the options name. CommandFailed for its errors."""
    servers = named_servers()
    if sum(given is not None for given in (metadata_dir, servers, snapshot)) > 1:
        names = "--metadata-dir, --bootstrap-server, --bootstrap-controller" + (", --snapshot" if snapshot else "")
        command = click.get_current_context().command_path
        raise WrongUse(f"Error: at most one of {names} can be given\nSee: {command} --help")
    if node_id is not None and (metadata_dir or snapshot):
        raise WrongUse("Error: --node names a running node to ask; leave it out, or leave the directory or snapshot out")
    try:
        if metadata_dir is not None:
            yield DirectorySource(metadata_dir)
        elif snapshot is not None:
            yield file_source(snapshot)
        else:
            with connect() as client:
                yield LiveSource(client, endpoint_of(client, node_id))
    except (NoHistory, UnreadableSnapshot) as error:
        raise CommandFailed(f"Error: {error}") from None


def file_source(path: str) -> Source:
    """Return the source for a snapshot file, or for a directory."""
    return DirectorySource(path) if Path(path).is_dir() else SnapshotSource(path)


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of an ISO time (UTC without a zone) or of a number of ms. WrongUse."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"Error: invalid time {text!r}: expected 2026-11-21T17:06:35Z, milliseconds since 1970, or now") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)


def parse_moment(offset: Moment | EpochEdge | None, time: str | None) -> Moment | EpochEdge:
    """Return the moment of `--offset` or `--time`, the newest moment without either. WrongUse for both."""
    if offset is not None and time is not None:
        raise WrongUse("Error: --offset and --time exclude each other; give one of them")
    if offset is not None:
        return offset
    return NEWEST if time in (None, NOW) else Moment(time_ms=parse_time(time))


def parse_point(text: str) -> Moment | EpochEdge | SnapshotSource:
    """Parse an end of a comparison: an offset `4711`, `epoch:3` or `epoch:3+`, `newest` or `now`, `@1795255398632` or an ISO
    time, or a snapshot file.
    """
    if epoch := re.fullmatch(r"epoch:([0-9]{1,9})(\+?)", text):
        return EpochEdge(int(epoch[1]), bool(epoch[2]))
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Moment(offset=int(text))
    if text in ("newest", NOW):
        return NEWEST
    if text.startswith("@"):
        return Moment(time_ms=parse_time(text[1:]))
    if text.endswith(".checkpoint") or Path(text).is_file():
        return SnapshotSource(text)
    try:
        return Moment(time_ms=parse_time(text))
    except WrongUse:
        raise WrongUse(
            f"Error: invalid moment {text!r}: expected an offset, newest, a time as 2026-11-21T17:06:35Z or @MILLISECONDS, "
            "epoch:3 (the start of an epoch) or epoch:3+ (its end), or the path of a snapshot file"
        ) from None


def moment_of(source: Source, point: Moment | EpochEdge) -> Moment:
    """Return the moment of an epoch's edge in this source. CommandFailed for an epoch without records there."""
    if isinstance(point, Moment):
        return point
    first = source.first()
    starts = {first.epoch: first.offset} if first.offset else {}
    for found in source.batches(first.offset, source.at(NEWEST).image.provenance.offset):
        if isinstance(found, str):
            break
        starts.setdefault(found.epoch, found.base_offset)
    if point.epoch not in starts:
        known = [str(epoch) for epoch in starts]
        shown = ", ".join(known if len(known) <= EPOCHS_SHOWN else [known[0], "…", *known[-EPOCHS_SHOWN:]])
        begin = f", which begins at offset {first.offset}" if first.offset else ""
        raise CommandFailed(
            f"Error: epoch {point.epoch} has no records in {source.name}{begin}; there are epochs {shown or 'none'}"
        )
    if point.is_end:
        return min((Moment(offset=start) for epoch, start in starts.items() if epoch > point.epoch), default=NEWEST)
    if first.offset and point.epoch == first.epoch:
        raise CommandFailed(
            f"Error: epoch {point.epoch} began before offset {first.offset}, where the log of {source.name} begins; "
            f"give the moment {first.offset}"
        )
    return Moment(offset=starts[point.epoch])


def _offset(context: click.Context, option: click.Parameter, text: str | None) -> Moment | EpochEdge | None:
    """Parse `--offset`: an offset, or an epoch's edge."""
    if text is None:
        return None
    if text.startswith("epoch:") and isinstance(edge := parse_point(text), EpochEdge):
        return edge
    return Moment(offset=click.IntRange(min=0)(text, option, context))


moment_options = (
    click.option(
        "--offset",
        callback=_offset,
        metavar="N",
        help="State before the record at this offset; epoch:3 is the first offset of epoch 3, epoch:3+ the one after its last.",
    ),
    click.option("--time", metavar="T", help="State at this time: 2026-11-21T17:06:35Z, milliseconds since 1970, or now."),
)

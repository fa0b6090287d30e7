"""Where the time-travel commands read metadata from: a directory, a snapshot file, or a node that runs.

A directory is read as it lies on the disk, whatever state its node is in. A running node is asked over its admin API and answers
from its own disk, secrets masked.
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
    Found,
    History,
    Moment,
    NoHistory,
    Step,
    UnreadableSnapshot,
    read_snapshot,
    while_files_vanish,
)
from kraftlab.quorum.storage.survey import metadata_partition

from ..connection import caller_options, connect, controller_option, endpoint_of, named_servers, server_option
from ..output import CommandFailed

if TYPE_CHECKING:
    from kraftlab.client import AdminClient
    from kraftlab.metadata.records import AnyRecord
    from kraftlab.quorum.core.types import Endpoint

F = TypeVar("F", bound=Callable[..., object])

NOW = "now"
"""A moment: the newest. Clocks of nodes that are ahead of this one's do not matter."""


class LoggedBatch(NamedTuple):
    """A batch of the log with its records; a control batch has none."""

    base_offset: int
    epoch: int
    append_time_ms: int
    record_count: int
    records: tuple[AnyRecord, ...]


class Source(Protocol):
    """`name` is what people call it."""

    name: str

    def at(self, moment: Moment) -> Found: ...

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        """Those between two offsets; a text comes last if they can not be read that far."""

    def known_committed(self) -> int | None:
        """Below it everything is committed for certain; None: everything that this source tells is."""


class DirectorySource:
    """A metadata.log.dir."""

    def __init__(self, directory: str) -> None:
        self.name = directory
        self._history = History(metadata_partition(directory))

    def at(self, moment: Moment) -> Found:
        return self._history.at(moment)

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        def steps() -> list[LoggedBatch | str]:
            found = self._history.steps(Moment(offset=start), Moment(offset=end))
            return [step if isinstance(step, str) else _logged(step) for step in found]

        yield from while_files_vanish(steps)

    def known_committed(self) -> int | None:
        return self._history.known_committed()


def _logged(step: Step) -> LoggedBatch:
    header = step.header
    return LoggedBatch(header.base_offset, header.epoch, header.append_time_ms, header.record_count, step.records)


class SnapshotSource:
    """One snapshot file."""

    def __init__(self, path: str) -> None:
        self.name = path

    def at(self, moment: Moment) -> Found:
        if moment != NEWEST:
            raise CommandFailed(f"Error: {self.name} is one snapshot and knows no other moment; leave --offset and --time out")
        found = read_snapshot(self.name)
        assert found is not None, "every snapshot lies before the newest moment"
        return Found(found[0], None, ())

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        raise CommandFailed(f"Error: {self.name} is a snapshot, which has no log; name the directory with --metadata-dir")

    def known_committed(self) -> int | None:
        return None


class LiveSource:
    """A node that runs."""

    def __init__(self, client: AdminClient, endpoint: Endpoint) -> None:
        self.name = f"node at {endpoint}"
        self._client = client
        self._endpoint = endpoint

    def at(self, moment: Moment) -> Found:
        from kraftlab.client.time_travel import describe_image
        from kraftlab.metadata.delta import MetadataDelta
        from kraftlab.metadata.image import Provenance
        from kraftlab.metadata.snapshot import image_from

        answer, bodies = describe_image(self._client, self._endpoint, offset=moment.offset, time_ms=moment.time_ms)
        provenance = Provenance(answer.offset, answer.epoch, answer.append_time_ms)
        return Found(MetadataDelta(image_from(bodies)).apply(provenance), None, ())

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        from kraftlab.client.time_travel import list_metadata_records
        from kraftlab.metadata import codec

        for found in list_metadata_records(self._client, self._endpoint, start, end):
            records = tuple(codec.decode(found.body, found.base_offset)) if found.body else ()
            yield LoggedBatch(found.base_offset, found.epoch, found.append_time_ms, found.record_count, records)

    def known_committed(self) -> int | None:
        return None


def source_options(command: F) -> F:
    """`--metadata-dir`, `--bootstrap-server`, `--bootstrap-controller`, `--node`, and who asks."""
    for option in (
        click.option("--node", "node_id", type=int, metavar="ID", help="The disk of this node; default: the first endpoint's."),
        caller_options,
        controller_option(),
        server_option(),
        click.option(
            "--metadata-dir", type=click.Path(), metavar="DIR", help="A node's metadata.log.dir, whether the node runs or not."
        ),
    ):
        command = option(command)
    return command


@contextmanager
def open_source(metadata_dir: str | None, node_id: int | None, snapshot: str | None = None) -> Iterator[Source]:
    """The one source that the options name; what goes wrong with it ends the command with one line."""
    servers = named_servers()
    if sum(given is not None for given in (metadata_dir, servers, snapshot)) > 1:
        names = "--metadata-dir, --bootstrap-server, --bootstrap-controller" + (", --snapshot" if snapshot else "")
        command = click.get_current_context().command_path
        raise CommandFailed(f"Error: at most one of {names} can be given\nSee: {command} --help")
    if node_id is not None and (metadata_dir or snapshot):
        raise CommandFailed("Error: --node names a running node to ask; leave it out, or leave the directory or snapshot out")
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
    """A snapshot by its file; a directory is taken for what it is."""
    return DirectorySource(path) if Path(path).is_dir() else SnapshotSource(path)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of an ISO time (UTC if it says nothing else) or of a number of ms. CommandFailed."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(f"Error: {text!r} is no time; write 2026-11-21T17:06:35Z, milliseconds since 1970, or now") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)


def parse_moment(offset: int | None, time: str | None) -> Moment:
    """What `--offset` and `--time` say together; the newest moment without either, and now."""
    if offset is not None and time is not None:
        raise CommandFailed("Error: --offset and --time are both given; give one of the two")
    return NEWEST if time == NOW else Moment(offset, None if time is None else parse_time(time))


def parse_point(text: str) -> Moment | Source:
    """An end of a comparison: `4711` an offset, `newest` or `now`, `@1795255398632` or an ISO time, or a snapshot file."""
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
    except CommandFailed:
        raise CommandFailed(
            f"Error: {text!r} is no moment; write an offset, newest, a time as 2026-11-21T17:06:35Z or @MILLISECONDS, or the "
            "path of a snapshot file"
        ) from None


moment_options = (
    click.option("--offset", type=click.IntRange(min=0), metavar="N", help="As it was at this offset (exclusive end)."),
    click.option("--time", metavar="T", help="As it was then: 2026-11-21T17:06:35Z, milliseconds since 1970, or now."),
)

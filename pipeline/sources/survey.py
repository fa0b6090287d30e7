"""Survey of the directories of some controllers: the owners of the logs, their beginnings and ends, and the committed end.

**Owners.** A directory belongs to the node and cluster of its `meta.properties`; our segments and snapshots carry their cluster,
too. Logs of different clusters are refused, and so is a cluster other than the requested one. A log without a `meta.properties`
counts as that of node -1, -2, …

**Committed end.** Records above the high watermark can still be truncated, so they must not be read as facts. Each of our batches
carries the leader's high watermark at its writing. The largest of them in the newest segment of any log, or the end of a later
snapshot, is a lower bound, and reading stops there. (An idle log is read up to the batch before its last, until the next batch is
written.) Kafka's batches carry none: there reading stops where half of the logs given end, which for a single log is its end. A
caller that knows better gives an end offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kraftlab.config import properties
from kraftlab.config.errors import ConfigError
from kraftlab.config.meta_properties import FILE_NAME as META_PROPERTIES

from ..errors import CorruptInput, WrongUse
from ..framing import Frame, ReadAt, walk
from ..storage import uris
from .formats import LogFormat

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

LOG, SNAPSHOT = "log", "snapshot"
PARTITION_DIRECTORY = "__cluster_metadata-0"
_SEGMENT = re.compile(r"(\d{20})\.log")
SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
BOOTSTRAP = "bootstrap.checkpoint"


class LogFile(NamedTuple):
    """One segment or snapshot. A segment holds offsets from `base_offset` up to `next_offset`, the beginning of the next segment
    (None for the last). A snapshot is at offset `base_offset`, the last one that it reflects.
    """

    uri: str
    name: str
    kind: str
    controller_id: int
    cluster_id: str | None
    size_bytes: int
    base_offset: int
    next_offset: int | None

    def touches(self, lo: int, hi: int | None) -> bool:
        """Return whether it can hold offsets of [lo, hi)."""
        if self.kind == SNAPSHOT:
            return max(0, self.base_offset) >= lo and (hi is None or self.base_offset < hi)
        return (hi is None or self.base_offset < hi) and (self.next_offset is None or self.next_offset > lo)


class LogEnd(NamedTuple):
    """Beginning and end of one controller's log."""

    controller_id: int
    start_offset: int
    end_offset: int


class Survey(NamedTuple):
    """The result. `committed_end` follows the last offset known to be committed, `log_end` the last offset of any log. `how`
    describes the derivation of `committed_end`.
    """

    cluster_id: str | None
    files: tuple[LogFile, ...]
    logs: tuple[LogEnd, ...]
    committed_end: int
    log_end: int
    how: str


def reader_of(uri: str) -> tuple[ReadAt, int]:
    """Return (read, size in bytes) of a file. FileNotFoundError."""
    system, path = uris.file_system(uri)
    stream = system.open_input_file(path)

    def read(position: int, size: int) -> bytes:
        data: bytes = stream.read_at(size, position)
        return data

    return read, stream.size()


def find_files(places: Iterable[str]) -> list[LogFile]:
    """Return the segments and snapshots in directories (or in `__cluster_metadata-0` within them), and files given by name.
    WrongUse if a place has none, or if two places are the same log.
    """
    found: list[LogFile] = []
    unnamed: dict[str, int] = {}
    for place in places:
        directory, names = _log_files(uris.normalised(place))
        node_id, cluster_id = _identity(directory)
        if node_id is None:
            log = directory if all(map(_place, names)) else uris.normalised(place)
            node_id = unnamed.setdefault(log, -1 - len(unnamed))
        found += _described(directory, names, node_id, cluster_id)
    seen: dict[tuple[int, str], str] = {}
    for file in found:
        other = seen.setdefault((file.controller_id, file.name), file.uri)
        if other is not file.uri:
            where = f"{uris.shown(other)} and {uris.shown(file.uri)}"
            raise WrongUse(f"{where} are both {file.name} of node {file.controller_id}; give each log once")
    return _followed(found)


def _log_files(uri: str) -> tuple[str, dict[str, int]]:
    """Return (URI of the directory, size by name of the log's files in it)."""
    from pyarrow.fs import FileSelector, FileType

    system, path = uris.file_system(uri)
    info = system.get_file_info(path)
    if info.type == FileType.NotFound:
        raise WrongUse(f"{uris.shown(uri)} does not exist; give a directory of a controller, a segment or a snapshot")
    if info.type == FileType.File:
        return uri.rpartition("/")[0], {info.base_name: info.size}
    for directory in (uris.joined(uri, PARTITION_DIRECTORY), uri):
        inside = system.get_file_info(FileSelector(uris.file_system(directory)[1], allow_not_found=True))
        sizes = {name: each.size for each in inside if each.type == FileType.File and _place(name := _name(each))}
        if sizes:
            return directory, dict(sorted(sizes.items()))
    raise WrongUse(
        f"{uris.shown(uri)} holds no metadata log (OFFSET.log or OFFSET-EPOCH.checkpoint); "
        f"give {PARTITION_DIRECTORY} or the metadata.log.dir of a controller"
    )


def _name(file: FileInfo) -> str:
    """Return a file's name, or an empty text if it is not UTF-8."""
    try:
        return str(file.base_name)
    except UnicodeDecodeError:
        return ""


def _place(name: str) -> tuple[str, int] | None:
    """Return (kind, offset) of a file's name, or None for a name of another kind."""
    segment = _SEGMENT.fullmatch(name)
    if segment is not None:
        return LOG, int(segment.group(1))
    snapshot = SNAPSHOT_NAME.fullmatch(name)
    if snapshot is not None:
        return SNAPSHOT, int(snapshot.group(1)) - 1
    return (SNAPSHOT, -1) if name == BOOTSTRAP else None


def is_log_name(name: str) -> bool:
    """Return whether a segment or snapshot can have this name."""
    return _place(name) is not None


def _identity(directory: str) -> tuple[int | None, str | None]:
    """Return (node id, cluster id) from the `meta.properties` of the directory or its parent."""
    from pyarrow.fs import FileType

    for place in (directory, directory.rpartition("/")[0]):
        uri = uris.joined(place, META_PROPERTIES)
        system, path = uris.file_system(uri)
        if system.get_file_info(path).type != FileType.File:
            continue
        with system.open_input_stream(path) as stream:
            data = stream.read()
        try:
            values = properties.parse(data, uris.shown(uri))
            return int(values["node.id"]), values["cluster.id"]
        except (ConfigError, KeyError, ValueError) as error:
            raise CorruptInput(f"{uris.shown(uri)} does not identify its log ({error}); restore it, or remove it") from None
    return None, None


def _described(directory: str, sizes: dict[str, int], node_id: int, cluster_id: str | None) -> list[LogFile]:
    """Return the files of one place, without the ends of segments. A file whose name has no offset counts as a
    segment from 0 on.
    """
    places = {name: _place(name) or (SNAPSHOT if name.endswith(".checkpoint") else LOG, 0) for name in sizes}
    return [
        LogFile(
            uris.joined(directory, name),
            name,
            kind,
            node_id,
            cluster_id,
            sizes[name],
            offset,
            None if kind == LOG else offset + 1,
        )
        for name, (kind, offset) in places.items()
    ]


def _followed(files: list[LogFile]) -> list[LogFile]:
    """Return the files, each segment with the beginning of the next segment of its log, from any of the given places."""
    bases = sorted({(file.controller_id, file.base_offset) for file in files if file.kind == LOG})
    following = {one: other[1] for one, other in pairwise(bases) if one[0] == other[0]}
    return [
        file._replace(next_offset=following.get((file.controller_id, file.base_offset))) if file.kind == LOG else file
        for file in files
    ]


def survey(places: Iterable[str], form: LogFormat, cluster_id: str | None = None) -> Survey:
    """Survey the newest segments. CorruptInput for logs of several clusters, or of a cluster other than `cluster_id`."""
    files = find_files(places)
    seen: dict[str, str] = {}
    logs, stamps = [], []
    for controller_id in sorted({file.controller_id for file in files}):
        own = [file for file in files if file.controller_id == controller_id]
        end, stamp = _newest(own, form, seen)
        starts = [file.base_offset for file in own if file.kind == LOG]
        snapshot_end = max((file.base_offset + 1 for file in own if file.kind == SNAPSHOT), default=0)
        logs.append(LogEnd(controller_id, min(starts, default=snapshot_end), max(end, snapshot_end)))
        stamps.append(max(stamp, snapshot_end))
        for file in own:
            if file.cluster_id is not None:
                seen.setdefault(file.cluster_id, file.uri)
    found = the_cluster(seen, cluster_id)
    files = [file if file.cluster_id is not None else file._replace(cluster_id=found) for file in files]
    ends = sorted((log.end_offset for log in logs), reverse=True)
    if form.has_stamps:
        committed, how = max(stamps), "the largest high watermark in the logs"
    else:
        committed, how = max(ends[len(ends) // 2], *stamps), "where more than half of the logs given end"
    return Survey(found, tuple(files), tuple(logs), committed, ends[0], how)


def the_cluster(seen: dict[str, str], expected: str | None) -> str | None:
    """Return the one cluster id among those found (id → place). CorruptInput."""
    for cluster_id, where in seen.items():
        if expected is not None and cluster_id != expected:
            raise CorruptInput(f"{uris.shown(where)} is of cluster {cluster_id}, not of {expected}; give the logs of one cluster")
        expected = cluster_id
    return expected


def _newest(files: list[LogFile], form: LogFormat, seen: dict[str, str]) -> tuple[int, int]:
    """Return (end offset, largest high watermark) of one log, from its newest segment with any batch. Adds
    cluster ids to `seen`.
    """
    segments = sorted((file for file in files if file.kind == LOG), key=lambda file: file.base_offset, reverse=True)
    for file in segments:
        read, size_bytes = reader_of(file.uri)
        start = form.start(read, size_bytes, False)
        if start.cluster_id is not None:
            seen.setdefault(start.cluster_id, file.uri)
        end = stamp = 0
        for entry in walk(read, size_bytes, form.form, start=start.batches_at):
            if isinstance(entry, Frame):
                end, stamp = max(end, entry.last_offset + 1), max(stamp, entry.high_watermark)
        if end:
            return end, stamp
    return 0, 0

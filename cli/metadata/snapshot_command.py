"""`kraftlab snapshot`: snapshots of the metadata log, on running nodes and as files (KIP-630)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.common.sizes import bytes_text

from ..completion.values import complete_nodes
from ..connection import connect, endpoint_of, endpoint_options, named_servers
from ..option_placement import AddressedGroup
from ..output import CommandFailed, Output, WrongUse, json_option
from .snapshot_text import SnapshotView, snapshot_lines

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb


@click.group(
    "snapshot",
    cls=AddressedGroup,
    epilog="""\b
Examples:
  kraftlab snapshot create --node 3001
  kraftlab snapshot list --node 3001
  kraftlab snapshot verify /var/lib/kraftlab/metadata""",
)
def snapshot() -> None:
    """Take, list and check snapshots of the metadata log. Every controller and broker has snapshots of its own."""


_node = click.option(
    "--node",
    "node_id",
    type=int,
    metavar="ID",
    shell_complete=complete_nodes,
    help="Id of the node to ask (default: the node at the first endpoint).",
)


def _view(found: pb.MetadataSnapshot) -> SnapshotView:
    return SnapshotView(found.end_offset, found.epoch, found.size_bytes, found.last_contained_log_timestamp)


@snapshot.command(
    "create",
    short_help="Make a node write a snapshot now.",
    epilog="""\b
Examples:
  kraftlab snapshot create
  kraftlab snapshot create --node 3001""",
)
@endpoint_options
@_node
@json_option
def create(node_id: int | None, as_json: bool) -> int:
    """Make a node write a snapshot of the records that it has applied. Nodes also write snapshots on their own; see the configs
    metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot.interval.ms.
    """
    from kraftlab.admin.v1 import admin_pb2 as pb

    with connect(changes=True) as client:
        answer = client.call_at(endpoint_of(client, node_id), pb.CreateSnapshotResponse, pb.CreateSnapshotRequest())
    view = _view(answer.snapshot)
    out = Output(as_json)
    out.lines([f"Node {answer.node_id} has written snapshot {view.name} ({bytes_text(view.size_bytes)})."])
    out.result({"node_id": answer.node_id, "snapshot": view})
    return DONE


@snapshot.command(
    "list",
    short_help="List the snapshots of a node or in a directory.",
    epilog="""\b
Examples:
  kraftlab snapshot list --node 3001
  kraftlab snapshot list --directory /var/lib/kraftlab/metadata      # of a node that does not run""",
)
@endpoint_options
@_node
@click.option(
    "--directory",
    type=click.Path(),
    metavar="DIR",
    help="Read a metadata.log.dir, or __cluster_metadata-0 inside it, instead of asking a node.",
)
@json_option
def list_of_node(node_id: int | None, directory: str | None, as_json: bool) -> int:
    """List the finished snapshots of a node, oldest first. The node's log starts where the oldest snapshot ends."""
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.node.history import while_files_vanish

    out = Output(as_json)
    if directory is not None:
        if named_servers() or node_id is not None:
            raise WrongUse("Error: --directory is read without asking a node; leave --bootstrap-server, --data and --node out")
        views = while_files_vanish(lambda: [_view_of_file(path) for path in snapshot_files(Path(directory))])
        out.lines(snapshot_lines(views))
        out.result({"directory": directory, "snapshots": views})
        return DONE

    with connect() as client:
        answer = client.call_at(endpoint_of(client, node_id), pb.ListSnapshotsResponse, pb.ListSnapshotsRequest())
    views = [_view(found) for found in answer.snapshots]
    out.lines([f"Node {answer.node_id}: log from offset {answer.log_start_offset} to {answer.log_end_offset}"])
    if answer.is_repairing:
        out.lines(["Its log was damaged: it fetches the lost records again, and does not vote until then."])
    out.lines(snapshot_lines(views))
    out.result(
        {
            "node_id": answer.node_id,
            "log_start_offset": answer.log_start_offset,
            "log_end_offset": answer.log_end_offset,
            "generation": answer.generation,
            "is_repairing": answer.is_repairing,
            "snapshots": views,
        }
    )
    return DONE


def _view_of_file(path: Path) -> SnapshotView:
    """Return the view of a snapshot file from its name and size."""
    from kraftlab.quorum.storage.snapshot_file import snapshot_id

    found = snapshot_id(path.name)
    assert found is not None, "only such files are listed"
    return SnapshotView(found.offset, found.epoch, path.stat().st_size, None)


def snapshot_files(directory: Path) -> list[Path]:
    """Return the finished snapshots in a metadata.log.dir or its partition directory, oldest first. CommandFailed for other
    directories.
    """
    from kraftlab.quorum.storage.file_system import RealFileReader
    from kraftlab.quorum.storage.identity import PARTITION_DIRECTORY
    from kraftlab.quorum.storage.snapshot_file import snapshot_name
    from kraftlab.quorum.storage.snapshot_store import list_snapshots

    partition = directory if directory.name == PARTITION_DIRECTORY else directory / PARTITION_DIRECTORY
    if not partition.is_dir():
        raise CommandFailed(f"Error: {directory} holds no metadata log; give a node's metadata.log.dir")
    return [partition / snapshot_name(position) for position in list_snapshots(RealFileReader(), str(partition))]


@snapshot.command(
    "verify",
    short_help="Check snapshot files.",
    epilog="""\b
Examples:
  kraftlab snapshot verify /var/lib/kraftlab/metadata
  kraftlab snapshot verify 00000000000000004711-0000000003.checkpoint""",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path())
@json_option
def verify(paths: tuple[str, ...], as_json: bool) -> int:
    """Check every byte of snapshot files, or of all snapshots in a metadata.log.dir. Exit code 1 if one is not valid."""
    from kraftlab.quorum.storage.errors import StorageError
    from kraftlab.quorum.storage.file_system import RealFileReader
    from kraftlab.quorum.storage.snapshot_store import verify_file

    out = Output(as_json)
    documents: list[dict[str, object]] = []
    named = {Path(path) for path in paths}
    for path in _files_of(paths):
        try:
            path.stat()
            summary = verify_file(RealFileReader(), str(path))
        except (OSError, StorageError) as error:
            if isinstance(error, FileNotFoundError) and path not in named:
                continue  # a running node has removed the file meanwhile
            reason = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            out.lines([f"INVALID  {reason}"])
            documents.append({"path": str(path), "is_valid": False, "reason": reason})
            continue
        view = SnapshotView(summary.id.offset, summary.id.epoch, summary.size_bytes, summary.append_time_ms)
        out.lines([f"valid    {path}: {summary.record_count} records, cluster {summary.cluster_id}"])
        documents.append(
            {
                "path": str(path),
                "is_valid": True,
                "record_count": summary.record_count,
                "cluster_id": summary.cluster_id,
                "generation": summary.generation,
                "snapshot": view,
            }
        )
    if not documents:
        out.lines(["There are no snapshots."])
    out.result({"files": documents})
    return DONE if all(document["is_valid"] for document in documents) else FAILED


def _files_of(paths: tuple[str, ...]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from snapshot_files(path)
        else:
            yield path

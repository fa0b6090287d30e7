"""The actions of `kraftlab log-dirs` after a failure: bring a directory back, promote or drop a copy that was kept."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kraftlab.common.sizes import bytes_text

from ..output import CommandFailed, Output, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import AdminClient
    from kraftlab.client.results import KeptReplicaCopy, LogDir

YES = frozenset({"y", "yes"})


def bring_online(client: AdminClient, broker: int, log_dir: str, out: Output) -> None:
    """Let a broker take a log directory back."""
    from kraftlab.admin.v1 import admin_pb2 as pb

    replicas = client.call_broker(broker, pb.OnlineLogDirResponse, pb.OnlineLogDirRequest(log_dir=log_dir)).replicas
    known = next((found for found in client.describe_log_dirs(broker, []) if found.log_dir == log_dir), None)
    lines = [f"Log directory {log_dir} of broker {broker} is online."]
    lines += [f"  {each.topic_name}-{each.partition_index}: {_outcome(each)}" for each in replicas]
    out.lines(lines)
    out.result(
        {
            "broker": broker,
            "logDir": log_dir,
            "directoryId": known.directory_id if known is not None else "",
            "replicas": [
                {
                    "partition": f"{each.topic_name}-{each.partition_index}",
                    "outcome": each.outcome,
                    "directory": each.directory or None,
                    "reason": each.reason or None,
                }
                for each in replicas
            ],
        }
    )


def _outcome(replica: pb.ReturnedReplica) -> str:
    return f"{replica.outcome} ({replica.reason})" if replica.reason else replica.outcome


def resolve(client: AdminClient, broker: int, name: str, out: Output, *, promote: bool, force: bool) -> None:
    """Promote or drop the copy that is named by its partition or its path, after a confirmation."""
    from kraftlab.admin.v1 import admin_pb2 as pb

    copy = _find(client.describe_log_dirs(broker, []), broker, name)
    if copy.doubt and copy.log_end_offset is None:
        raise CommandFailed(f"Error: {describe_copy(broker, copy)}")
    partition = f"{copy.topic_name}-{copy.partition_index}"
    out.lines([describe_copy(broker, copy), loss(copy, promote=promote)])
    if not force:
        _confirm(out.as_json, "Promote it" if promote else "Drop it")
    client.call_broker(broker, pb.ResolveReplicaCopyResponse, pb.ResolveReplicaCopyRequest(path=copy.path, promote=promote))
    out.lines([f"The copy of {partition} was {'promoted' if promote else 'dropped'}."])
    out.result({"broker": broker, "partition": partition, "path": copy.path, "action": "promote" if promote else "drop"})


def _find(log_dirs: Iterable[LogDir], broker: int, name: str) -> KeptReplicaCopy:
    copies = [copy for found in log_dirs for copy in found.kept_copies]
    named = [copy for copy in copies if name in (copy.path, f"{copy.topic_name}-{copy.partition_index}")]
    if len(named) == 1:
        return named[0]
    if named:
        paths = "\n".join(f"  {copy.path}" for copy in named)
        raise CommandFailed(f"Error: broker {broker} keeps several copies of {name}; name one by its path:\n{paths}")
    known = ", ".join(f"{copy.topic_name}-{copy.partition_index}" for copy in copies) or "none"
    raise CommandFailed(f"Error: broker {broker} keeps no copy of {name}; it keeps copies of: {known}")


def describe_copy(broker: int, copy: KeptReplicaCopy) -> str:
    """One line about a kept copy."""
    end = f", offsets up to {copy.log_end_offset}" if copy.log_end_offset is not None else ""
    why = "kept, since the replica's own log may be on an offline disk"
    if copy.is_stray or copy.doubt:
        why = copy.doubt or "set aside: compare it with the log that is served, then --promote or --drop it"
    partition = f"{copy.topic_name}-{copy.partition_index}"
    if copy.doubt and copy.log_end_offset is None:
        return f"Broker {broker} has no directory {copy.path} of {partition}: {copy.doubt}"
    return f"Broker {broker} has a copy of {partition} ({bytes_text(copy.size_bytes)}{end}; {why}): {copy.path}"


def loss(copy: KeptReplicaCopy, *, promote: bool) -> str:
    """Say what is lost by promoting or dropping a copy."""
    if copy.doubt:
        partition = f"{copy.topic_name}-{copy.partition_index}"
        if promote:
            return (
                f"If {partition} was deleted and created again, these may be records of the old topic. Once it is promoted, its "
                "partition.metadata is written again."
            )
        return f"Dropping it deletes these records from this broker; {partition} begins here with an empty log."
    if not promote:
        return "Dropping it deletes these records from this broker; they may be the last ones if the offline disk is lost."
    if copy.is_stray:
        return "It may lack records that the replica had."
    if copy.log_end_offset is not None and copy.lost_log_end_offset is not None:
        missing = max(copy.lost_log_end_offset - copy.log_end_offset, 0)
        lack = f"It lacks {missing} offsets of the log on the offline disk, which ended at {copy.lost_log_end_offset}."
    else:
        lack = "It may lack records of the log on the offline disk."
    return f"{lack} Once it is promoted, that log is set aside when its disk returns."


def _confirm(as_json: bool, question: str) -> None:
    """CommandFailed unless the user agrees."""
    if as_json:
        raise WrongUse("Error: with --json there is no prompt; add --force")
    click.echo(f"{question}? (y/n) ", nl=False)
    if sys.stdin.readline().strip().lower() not in YES:
        raise CommandFailed("Error: not confirmed, nothing was changed; in scripts use --force")

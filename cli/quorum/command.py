"""`kraftlab metadata-quorum`: show and change the metadata quorum (kafka-metadata-quorum)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.exit_codes import DONE

from ..connection import command_config_option, connect, controller_option, server_option, user_option
from ..option_placement import AddressedGroup
from ..output import Output, WrongUse, json_option, linearizable_option
from . import changes as quorum_changes
from .standalone_command import force_standalone

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb

    from .text import QuorumView, ReplicaView


@click.group(
    "metadata-quorum",
    cls=AddressedGroup,
    epilog="""\b
Examples:
  kraftlab metadata-quorum describe --status
  kraftlab metadata-quorum add-controller --config controller.properties
  kraftlab metadata-quorum transfer-leadership --to 3001""",
)
@server_option()
@controller_option()
@user_option
@command_config_option(
    "Properties file with username and password; for add-controller: the new controller's server.properties.", expose_value=True
)
@click.pass_context
def metadata_quorum(context: click.Context, /, command_config: str | None) -> None:
    """Show the state of the metadata quorum, change its voters, and transfer its leadership."""
    context.obj = command_config


@metadata_quorum.command(
    "describe",
    epilog="""\b
Examples:
  kraftlab metadata-quorum describe --status
  kraftlab metadata-quorum describe --replication --human-readable""",
)
@click.option("--status", is_flag=True, help="Show leader, epoch, high watermark, lag, voters and observers.")
@click.option("--replication", is_flag=True, help="Show a table of replicas with their log ends, lags and times.")
@click.option("--human-readable", is_flag=True, help="With --replication: show times as '8 ms ago'.")
@linearizable_option
@json_option
def describe(status: bool, replication: bool, human_readable: bool, linearizable: bool, as_json: bool) -> int:
    """Describe the quorum as its leader sees it. Give --status or --replication."""
    if status == replication:
        raise WrongUse("One of --status or --replication must be specified with describe sub-command")
    if status and human_readable:
        raise WrongUse("The option --human-readable is only supported along with --replication")

    from .text import replication_lines, status_lines

    out = Output(as_json)
    with connect(linearizable=linearizable) as client:
        view = quorum_view(client.describe_quorum())
    now_ms = wall_clock_ms() if human_readable else None
    out.lines(status_lines(view) if status else replication_lines(view, now_ms))
    out.result(view)
    return DONE


def quorum_view(response: pb.DescribeQuorumResponse) -> QuorumView:
    from .text import QuorumView

    return QuorumView(
        response.cluster_id,
        response.leader_id,
        response.leader_epoch,
        response.high_watermark,
        tuple(_replica_view(replica) for replica in sorted(response.current_voters, key=lambda replica: replica.replica_id)),
        tuple(_replica_view(replica) for replica in sorted(response.observers, key=lambda replica: replica.replica_id)),
        response.kraft_version,
        response.log_start_offset,
        response.generation,
    )


def _replica_view(replica: pb.QuorumReplica) -> ReplicaView:
    from .text import ReplicaView

    return ReplicaView(
        replica.replica_id,
        replica.replica_directory_id,
        replica.log_end_offset,
        replica.last_fetch_timestamp,
        replica.last_caught_up_timestamp,
        tuple(f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in replica.endpoints),
    )


metadata_quorum.add_command(quorum_changes.add_controller)
metadata_quorum.add_command(quorum_changes.remove_controller)
metadata_quorum.add_command(quorum_changes.transfer_leadership)
metadata_quorum.add_command(force_standalone)

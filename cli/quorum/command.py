"""`kraftlab metadata-quorum`: show and change the metadata quorum (kafka-metadata-quorum)."""

from __future__ import annotations

import click

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.exit_codes import DONE

from ..connection import command_config_option, connect, controller_option, server_option, user_option
from ..option_placement import AddressedGroup
from ..output import Output, WrongUse, json_option, linearizable_option
from . import changes as quorum_changes
from .standalone_command import force_standalone


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

    from .text import document, replication_lines, status_lines

    out = Output(as_json)
    with connect(linearizable=linearizable) as client:
        quorum = client.describe_quorum()
    now_ms = wall_clock_ms() if human_readable else None
    out.lines(status_lines(quorum) if status else replication_lines(quorum, now_ms))
    out.result(document(quorum))
    return DONE


metadata_quorum.add_command(quorum_changes.add_controller)
metadata_quorum.add_command(quorum_changes.remove_controller)
metadata_quorum.add_command(quorum_changes.transfer_leadership)
metadata_quorum.add_command(force_standalone)

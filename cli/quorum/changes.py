"""`kraftlab metadata-quorum add-controller`, `remove-controller` and `transfer-leadership`: changes of a running quorum."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kraftlab.common.exit_codes import DONE

from ..completion.values import offer
from ..connection import connect, required_servers
from ..output import CommandFailed, Output, WrongUse, json_option
from .text import shown

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

TIMEOUT_MS = 60_000
ELECTION_PATIENCE_S = 10.0
_POLL_S = 0.05

_timeout_option = click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=1),
    default=TIMEOUT_MS,
    show_default=True,
    metavar="MS",
    help="Time limit for the change.",
)


def _voter_ids(client: AdminClient, context: click.Context) -> list[CompletionItem]:
    return [CompletionItem(str(voter.replica_id)) for voter in client.describe_quorum().current_voters]


def _voter_directory_ids(client: AdminClient, context: click.Context) -> list[CompletionItem]:
    """Return the directory ids of the voters, or of the voter whose id is given."""
    chosen = context.params.get("controller_id")
    return [
        CompletionItem(voter.replica_directory_id, help=f"controller {voter.replica_id}")
        for voter in client.describe_quorum().current_voters
        if chosen in (None, voter.replica_id)
    ]


_complete_voters, _complete_directories = offer(_voter_ids), offer(_voter_directory_ids)


@click.command(
    "add-controller",
    short_help="Make a running controller a voter.",
    epilog="""\b
Example, on the machine of the new controller:
  kraftlab storage format -t CLUSTER-ID -c controller.properties --no-initial-controllers
  kraftlab node -c controller.properties &
  kraftlab metadata-quorum add-controller --config controller.properties""",
)
@click.option(
    "--config", "-c", metavar="FILE", help="The new controller's server.properties (Kafka's name for it: --command-config)."
)
@click.option("--dry-run", is_flag=True, help="Print the change without making it.")
@_timeout_option
@json_option
@click.pass_obj
def add_controller(command_config: str | None, /, config: str | None, dry_run: bool, timeout_ms: int, as_json: bool) -> int:
    """Make a controller a voter. Its id, directory id and endpoints are read from its server.properties and log directories.

    The controller must be running as an observer. The command waits until it has caught up, and returns when the new set of
    voters is committed.
    """
    from kraftlab.common.uuids import to_text
    from kraftlab.config.initial_voters import own_voter
    from kraftlab.config.models import load_controller

    path = config or command_config
    if path is None:
        raise WrongUse(
            "You must supply the configuration file of the controller you are adding when using add-controller.\n"
            "Add: --config FILE"
        )
    required_servers(changes=not dry_run)
    voter = own_voter(load_controller(path))
    node_id, directory_id = voter.key.node_id, to_text(voter.key.directory_id)
    if not dry_run:
        with connect(changes=True) as client:
            client.add_raft_voter(node_id, directory_id, voter.endpoints, timeout_ms=timeout_ms)
    endpoints = [f"{name}://{endpoint}" for name, endpoint in sorted(voter.endpoints.items())]
    out = Output(as_json)
    done = "DRY RUN of adding" if dry_run else "Added"
    out.lines([f"{done} controller {node_id} with directory id {directory_id} and endpoints: {', '.join(endpoints)}"])
    out.result({"controller_id": node_id, "directory_id": directory_id, "endpoints": endpoints, "dry_run": dry_run})
    return DONE


@click.command(
    "remove-controller",
    short_help="Make a voter an observer.",
    epilog="""\b
Example; `describe --status` shows the directory id:
  kraftlab metadata-quorum remove-controller -i 3002 -d DIRECTORY-ID""",
)
@click.option(
    "--controller-id", "-i", type=int, required=True, metavar="ID", shell_complete=_complete_voters, help="The voter's id."
)
@click.option(
    "--controller-directory-id",
    "-d",
    required=True,
    metavar="ID",
    shell_complete=_complete_directories,
    help="The voter's directory id.",
)
@click.option("--dry-run", is_flag=True, help="Print the change without making it.")
@_timeout_option
@json_option
def remove_controller(controller_id: int, controller_directory_id: str, dry_run: bool, timeout_ms: int, as_json: bool) -> int:
    """Make a voter an observer. It need not be running. A leader that is removed resigns once its removal is committed.

    Returns when the new set of voters is committed.
    """
    required_servers(changes=not dry_run)
    if controller_id < 0:
        raise WrongUse(f"Invalid negative --controller-id: {controller_id}")
    _check_directory_id(controller_directory_id)
    if not dry_run:
        with connect(changes=True) as client:
            client.remove_raft_voter(controller_id, controller_directory_id, timeout_ms=timeout_ms)
    out = Output(as_json)
    done = "DRY RUN of removing " if dry_run else "Removed "
    out.lines([f"{done} KRaft controller {controller_id} with directory id {controller_directory_id}"])
    out.result({"controller_id": controller_id, "directory_id": controller_directory_id, "dry_run": dry_run})
    return DONE


def _check_directory_id(text: str) -> None:
    from kraftlab.common.uuids import from_text

    try:
        from_text(text)
    except ValueError as error:
        raise WrongUse(f"Failed to parse --controller-directory-id: {error}") from None


@click.command(
    "transfer-leadership",
    short_help="Transfer the leadership to another voter.",
    epilog="""\b
Example:
  kraftlab metadata-quorum transfer-leadership --to 3001""",
)
@click.option(
    "--to",
    "controller_id",
    type=int,
    required=True,
    metavar="ID",
    shell_complete=_complete_voters,
    help="Id of the voter that should lead.",
)
@_timeout_option
@json_option
def transfer_leadership(controller_id: int, timeout_ms: int, as_json: bool) -> int:
    """Make the leader resign in favour of another voter, and wait until a leader is elected. No acknowledged write is lost."""
    with connect(changes=True, timeout_ms=timeout_ms) as client:
        before = shown(client.describe_quorum().leader_id)
        client.transfer_leadership(controller_id, timeout_ms=timeout_ms)
        leader_id, epoch = _wait_for_leader(client, controller_id, before)
    if leader_id != controller_id:
        raise CommandFailed(
            f"Controller {leader_id} leads in epoch {epoch}; {controller_id} was not elected. See its log, then run this again"
        )
    out = Output(as_json)
    is_new = before != leader_id
    out.lines(
        [f"Controller {leader_id} leads {'' if is_new else 'already, '}in epoch {epoch}{'.' if is_new else ': no change.'}"]
    )
    out.result({"leader_id": leader_id, "leader_epoch": epoch, "previous_leader_id": before})
    return DONE


def _wait_for_leader(client: AdminClient, wanted: int, before: int) -> tuple[int, int]:
    """Return (id, epoch) of the leader once it is `wanted` or has changed."""
    deadline = time.monotonic() + ELECTION_PATIENCE_S
    while True:
        quorum = client.describe_quorum()
        leader_id = shown(quorum.leader_id)
        if leader_id == wanted or leader_id != before or time.monotonic() > deadline:
            return leader_id, quorum.leader_epoch
        time.sleep(_POLL_S)

"""`kraftlab cluster`: the cluster's id, its members, removal of dead brokers (kafka-cluster), and fault injection."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..completion.values import complete_brokers
from ..connection import asks_controllers, connect, endpoint_options
from ..option_placement import AddressedGroup
from ..output import Output, WrongUse, json_option
from . import break_commands

CONTACTS_TIMEOUT_MS = 2000
HEALTH_TIMEOUT_MS, LAST_LOOK_MS = 5000, 2000
"""Time limit of each call about the cluster's health, and the least of it when the time to wait is almost over."""
POLL_S = 0.5
WAIT_S, WAIT_S_MAX = 60, 86_400

if TYPE_CHECKING:
    from kraftlab.client import AdminClient
    from kraftlab.client.results import Cluster

    from .cluster_text import Member


@click.group(
    "cluster",
    cls=AddressedGroup,
    epilog="""\b
Examples:
  kraftlab cluster cluster-id
  kraftlab cluster list-endpoints --include-fenced-brokers --long
  kraftlab cluster health --wait 30
  kraftlab cluster unregister --id 9
  kraftlab cluster isolate leader --for 5s --data /tmp/lab      # with: kraftlab up --allow-chaos""",
)
def cluster() -> None:
    """Show the cluster's id and its members, unregister brokers, and inject faults.

    Fault commands need a cluster that was started with `kraftlab up --allow-chaos`. NODES are names such as controller-3000 and
    broker-1, or leader, followers, controllers, brokers, all; separate several with commas.
    """


for _fault_command in break_commands.COMMANDS:
    cluster.add_command(_fault_command)


@cluster.command(
    "cluster-id",
    epilog="""\b
Example:
  kraftlab cluster cluster-id""",
)
@endpoint_options
@json_option
def cluster_id(as_json: bool) -> int:
    """Print the id of the cluster."""
    out = Output(as_json)
    with connect() as client:
        found = client.describe_cluster().cluster_id
    out.lines([f"Cluster ID: {found}"])
    out.result({"cluster_id": found})
    return DONE


@cluster.command(
    "list-endpoints",
    epilog="""\b
Example:
  kraftlab cluster list-endpoints --include-fenced-brokers --long""",
)
@click.option("--include-fenced-brokers", is_flag=True, help="Include fenced brokers.")
@click.option("--long", "is_long", is_flag=True, help="Add the epoch, last contact and cordoned log directories of each broker.")
@endpoint_options
@json_option
def list_endpoints(include_fenced_brokers: bool, is_long: bool, as_json: bool) -> int:
    """List the brokers, or with --bootstrap-controller the controllers."""
    if include_fenced_brokers and asks_controllers():
        raise WrongUse(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option\nSee: kraftlab cluster --help"
        )
    from .cluster_text import endpoint_lines

    out = Output(as_json)
    with connect() as client:
        described = _describe(client, include_fenced_brokers, with_contacts=is_long and not asks_controllers())
    members = _controllers(described) if asks_controllers() else _brokers(described)
    out.lines(endpoint_lines(members, is_long))
    out.result(members)
    return DONE


def _a_number(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("expected a number of seconds")
    return value


@cluster.command(
    "health",
    epilog="""\b
Examples:
  kraftlab cluster health
  kraftlab cluster health --wait && run-my-tests
  kraftlab cluster health --wait 300 --json | jq .findings
  kraftlab cluster health --json | jq .healthy""",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0, max=WAIT_S_MAX),
    callback=_a_number,
    is_flag=False,
    flag_value=WAIT_S,
    default=0,
    metavar="[SECONDS]",
    help=f"Wait until nothing is wrong, at most so long; {WAIT_S} without a number.",
)
@endpoint_options
@json_option
def health(wait_s: float, as_json: bool) -> int:
    """Show what is wrong with a cluster, and the next step: brokers, log directories, leaders and replicas.

    Exit code 0: nothing is wrong; running reassignments are fine. 1: something is, or the cluster does not answer.
    """
    from kraftlab.client import ClusterUnreachable
    from kraftlab.client.health import look
    from kraftlab.common.errors import ApiError

    from .cluster_text import health_lines

    out, deadline = Output(as_json), time.monotonic() + wait_s
    while True:
        try:
            with connect() as client:
                left_ms = int((deadline - time.monotonic()) * 1000)
                found = look(client, min(max(left_ms, LAST_LOOK_MS), HEALTH_TIMEOUT_MS) if wait_s else HEALTH_TIMEOUT_MS)
        except (ApiError, ClusterUnreachable):
            if time.monotonic() >= deadline:
                raise
            found = None
        if found is not None and not any(finding.is_fault for finding in found):
            break
        if time.monotonic() >= deadline:
            break
        time.sleep(min(POLL_S, max(deadline - time.monotonic(), 0)))
    assert found is not None, "the last attempt failed with an error"
    is_healthy = not any(finding.is_fault for finding in found)
    out.lines(health_lines(found))
    out.result({"healthy": is_healthy, "findings": found})
    return DONE if is_healthy else FAILED


def _describe(client: AdminClient, include_fenced: bool, with_contacts: bool) -> Cluster:
    """Describe the cluster, with last contacts from the active controller if it answers soon: no other node knows them."""
    from kraftlab.client import ClusterUnreachable
    from kraftlab.common.errors import ApiError

    if with_contacts:
        with suppress(ApiError, ClusterUnreachable):
            return client.describe_cluster(
                include_fenced_brokers=include_fenced, linearizable=True, timeout_ms=CONTACTS_TIMEOUT_MS
            )
    return client.describe_cluster(include_fenced_brokers=include_fenced)


def _brokers(described: Cluster) -> list[Member]:
    from .cluster_text import Member

    return [
        Member(
            broker.broker_id,
            broker.host,
            broker.port,
            broker.rack,
            "fenced" if broker.is_fenced else "shutting down" if broker.in_controlled_shutdown else "unfenced",
            "broker",
            broker.broker_epoch if broker.broker_epoch >= 0 else None,
            broker.silent_ms,
            broker.cordoned_log_dirs,
            len(broker.log_dirs),
        )
        for broker in described.brokers
    ]


def _controllers(described: Cluster) -> list[Member]:
    from .cluster_text import Member

    return [Member(node.controller_id, node.host, node.port, None, "registered", "controller") for node in described.controllers]


@cluster.command(
    "unregister",
    epilog="""\b
Example:
  kraftlab cluster unregister --id 9""",
)
@click.option(
    "--id",
    "broker_id",
    type=int,
    required=True,
    metavar="N",
    shell_complete=complete_brokers,
    help="Id of the broker to unregister.",
)
@click.option(
    "--expected-epoch",
    type=int,
    metavar="N",
    help="Only if the broker is registered with this epoch, as `list-endpoints --long` shows it.",
)
@endpoint_options
@json_option
def unregister(broker_id: int, expected_epoch: int | None, as_json: bool) -> int:
    """Remove the registration of a stopped broker. A running broker registers again; replica lists do not change."""
    out = Output(as_json)
    with connect(changes=True) as client:
        offset = client.unregister_broker(broker_id, expected_epoch)
    out.lines([f"Broker {broker_id} is no longer registered."])
    out.result({"broker_id": broker_id, "metadata_offset": offset})
    return DONE

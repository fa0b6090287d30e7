"""`kraftlab cluster cut|heal|kill|…`: injects faults into a cluster on this machine, and reports them.

The commands only send orders: the process of `kraftlab up --allow-chaos` carries them out and undoes them, also after a command
has ended. Completion offers the names of nodes in the cluster's directory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftlab.common.exit_codes import DONE

from ..completion.values import offer_words
from ..output import Output, json_option

if TYPE_CHECKING:
    from kraftlab.lab.cluster_plan import ClusterPlan
    from kraftlab.lab.faults.orders import Done

F = TypeVar("F", bound=Callable[..., object])

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_TIME = re.compile(r"([0-9]{1,12}(?:\.[0-9]+)?)(ms|s|m|h)")


def _time(text: str) -> float:
    """Return the milliseconds of `500ms`, `5s`, `2m` or `1h`."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"invalid duration {text!r}: expected e.g. 500ms, 5s, 2m or 1h")
    return float(match[1]) * _UNITS_MS[match[2]]


def _probability(text: str) -> float:
    """Return 0.2 for `20%` and for `0.2`."""
    try:
        probability = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        probability = -1.0
    if not 0 <= probability <= 1:
        raise click.BadParameter(f"invalid probability {text!r}: expected e.g. 20% or 0.2")
    return probability


def _rate(text: str) -> float:
    """Return the rate of a clock: 3 is three times as fast."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate):
        raise click.BadParameter(f"invalid rate {text!r}: expected e.g. 3 or 0.5")
    return rate


def _names(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Split a list of names with commas."""
    return tuple(name for name in text.split(",") if name) if isinstance(text, str) else text


def _node_names(context: click.Context) -> tuple[str, ...]:
    """Return the names of nodes in the cluster of --data, none without a cluster."""
    from kraftlab.lab.faults.names import names_of

    plan = _plan(context)
    return names_of(plan) if plan is not None else ()


def _plan(context: click.Context) -> ClusterPlan | None:
    """Return the cluster of --data, None without one."""
    from kraftlab.lab import ClusterError, cluster_plan, contexts

    try:
        return cluster_plan.load(Path(context.params.get("data") or next(iter(contexts.running()), ".")))
    except ClusterError:
        return None


def _nodes(name: str = "nodes", metavar: str = "NODES", **details: Any) -> Callable[[F], F]:
    """Add an argument with names of nodes."""
    return click.argument(name, type=_names, metavar=metavar, shell_complete=offer_words(_node_names), **details)


def _only_cluster(context: click.Context, parameter: click.Parameter, data: str | None) -> str | None:
    """Return `data`, by default the directory of the only cluster that is up. UsageError if none or several are up.

    No default picks one of several: a fault would strike the wrong cluster.
    """
    from kraftlab.lab import contexts

    if data is not None or context.resilient_parsing:
        return data
    directories = contexts.running()
    if len(directories) != 1:
        reason = (
            f"{len(directories)} clusters are up; name one of {', '.join(map(str, directories))}"
            if directories
            else "No cluster is up; start one with: kraftlab up --allow-chaos --data DIR"
        )
        raise click.UsageError(f"Missing option '--data'. {reason}", context)
    return str(directories[0])


def _directory_names(context: click.Context) -> list[str]:
    """Return the short names of log directories of brokers in the cluster of --data."""
    plan = _plan(context)
    return [f"d{index}" for index in range(max(node.log_dirs for node in plan.nodes))] if plan is not None else []


def _directory(*, required: bool) -> Callable[[F], F]:
    """Add an argument with the name of a log directory, "" by default."""
    details: dict[str, Any] = {"required": True} if required else {"required": False, "default": ""}
    metavar = "DIRECTORY" if required else "[DIRECTORY]"
    return click.argument("directory", metavar=metavar, shell_complete=offer_words(_directory_names), **details)


_data = click.option(
    "--data",
    type=click.Path(),
    metavar="DIR",
    callback=_only_cluster,
    help="Directory of a cluster of `kraftlab up --allow-chaos` (default: the only cluster that is up on this machine).",
)
_for = click.option(
    "--for",
    "for_ms",
    type=_time,
    metavar="TIME",
    help="Undo the fault after TIME, for example 500ms, 5s or 2m; default: it lasts until `heal`. The command returns at once.",
)
_one_way = click.option(
    "--one-way", is_flag=True, help="Only messages from the first nodes to the second, or from NODES to all others."
)
_drop = click.option(
    "--drop", is_flag=True, help="When a cut link heals, drop its waiting messages instead of delivering them late."
)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  kraftlab cluster {line} --data /tmp/lab" for line in lines)


def _command(name: str, short_help: str, *examples: str) -> Callable[[F], click.Command]:
    def make(function: F) -> click.Command:
        command = click.command(name, short_help=short_help, epilog=_examples(*examples))
        return command(_data(json_option(function)))

    return make


def _send_order(data: str, order: str, names: Any = (), **details: Any) -> Done:
    from kraftlab.lab.faults.caller import give
    from kraftlab.lab.faults.orders import Order

    return give(Path(data), Order(order, tuple(names), **details))


_ENDS = {
    "kill": "started again",
    "power-loss": "started again",
    "pause": "resumed",
    "fill-disk": "freed",
    "fail-disk": "repaired",
}
"""Order with a time → the word for its end. Others are undone."""


def _report(done: Done, as_json: bool, order: str = "") -> int:
    import msgspec

    out = Output(as_json)
    undone = f"; {_ENDS.get(order, 'undone')} after {done.undone_after_ms / 1000:g} s" if done.undone_after_ms is not None else ""
    out.lines([f"{done.text}{undone}", *done.next_steps])
    document = msgspec.to_builtins(done)
    out.result({key: value for key, value in document.items() if key != "type"})
    return DONE


@_command(
    "cut",
    "Cut the links between nodes.",
    "cut leader followers --for 5s",
    "cut controller-3000 broker-1 --one-way",
    "cut controllers brokers --reset",
)
@_nodes("first")
@_nodes("second")
@_for
@_one_way
@click.option("--reset", is_flag=True, help="Reset connections at once, instead of letting them hang.")
@_drop
def cut(first: tuple[str, ...], second: tuple[str, ...], data: str, as_json: bool, **details: object) -> int:
    """Cut the links between two nodes, or two lists of nodes. Connections stay open, and messages wait until the links heal."""
    return _report(_send_order(data, "cut", (first, second), **details), as_json)


@_command(
    "isolate",
    "Cut a node off from all others.",
    "isolate leader --for 5s",
    "isolate broker-1 --one-way",
)
@_nodes()
@_for
@_one_way
@click.option("--reset", is_flag=True, help="Reset connections at once, instead of letting them hang.")
@_drop
def isolate(nodes: tuple[str, ...], data: str, as_json: bool, **details: object) -> int:
    """Cut each named node off from every other node, including the other named nodes."""
    return _report(_send_order(data, "isolate", (nodes,), **details), as_json)


@_command(
    "partition",
    "Split the cluster into groups.",
    "partition leader,broker-0 followers,broker-1,broker-2 --for 10s",
    "partition 'controller-3000,broker-0|controller-3001,controller-3002'",
)
@_nodes("groups", "NODES NODES …", nargs=-1, required=True)
@_for
@_drop
def partition(groups: tuple[tuple[str, ...], ...], data: str, as_json: bool, **details: object) -> int:
    """Cut the links between groups of nodes. Nodes that are in no group keep all their links."""
    split = [tuple(part.split(",")) for group in groups for part in ",".join(group).split("|")]
    return _report(_send_order(data, "partition", split, **details), as_json)


@_command(
    "slow",
    "Delay messages.",
    "slow leader --delay 200ms --jitter 50ms --for 30s",
    "slow controller-3000 controller-3001 --one-way",
)
@_nodes("first")
@_nodes("second", "[NODES]", required=False)
@click.option(
    "--delay", "delay_ms", type=_time, metavar="TIME", default="100ms", show_default=True, help="Delay of each message."
)
@click.option(
    "--jitter",
    "jitter_ms",
    type=_time,
    metavar="TIME",
    default="0ms",
    show_default=True,
    help="Additional random delay of each message, up to TIME.",
)
@_for
@_one_way
def slow(first: tuple[str, ...], second: tuple[str, ...] | None, data: str, as_json: bool, **details: object) -> int:
    """Delay the messages between two nodes, or between one node and all others. Messages stay in order."""
    return _report(_send_order(data, "slow", _groups(first, second), **details), as_json)


@_command(
    "lossy",
    "Lose, duplicate or reorder messages.",
    "lossy leader --loss 20% --for 30s",
    "lossy controllers brokers --duplicate 10% --reorder 30%",
)
@_nodes("first")
@_nodes("second", "[NODES]", required=False)
@click.option(
    "--loss",
    type=_probability,
    metavar="PROBABILITY",
    default=None,
    help="Probability that a message is lost, as 20% or 0.2 (default: 20%, or 0 with --duplicate or --reorder).",
)
@click.option(
    "--duplicate",
    type=_probability,
    metavar="PROBABILITY",
    default="0%",
    help="Probability that a message arrives twice (default: 0).",
)
@click.option(
    "--reorder",
    type=_probability,
    metavar="PROBABILITY",
    default="0%",
    help="Probability that a message arrives after later ones (default: 0).",
)
@_for
@_one_way
def lossy(
    first: tuple[str, ...], second: tuple[str, ...] | None, loss: float | None, data: str, as_json: bool, **details: object
) -> int:
    """Lose, duplicate or reorder random messages between two nodes, or between one node and all others."""
    loss = (0.0 if details["duplicate"] or details["reorder"] else 0.2) if loss is None else loss
    return _report(_send_order(data, "lossy", _groups(first, second), loss=loss, **details), as_json)


@_command(
    "heal",
    "Undo faults.",
    "heal",
    "heal leader followers --drop",
    "heal broker-1",
    "heal --order 3",
)
@_nodes("first", "[NODES", required=False)
@_nodes("second", "[NODES]]", required=False)
@click.option("--one-way", is_flag=True, help="With two lists: heal only the links from the first nodes to the second.")
@click.option(
    "--order",
    "number",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Heal only the fault #N of `kraftlab cluster status`.",
)
@_drop
def heal(first: tuple[str, ...] | None, second: tuple[str, ...] | None, data: str, as_json: bool, **details: object) -> int:
    """Undo all faults, only those of some nodes, only those of the links between two lists of nodes, or only one order.

    Killed nodes start, paused nodes resume, and cut links deliver their waiting messages.
    """
    return _report(_send_order(data, "heal", _groups(first, second), **details), as_json)


def _groups(*groups: tuple[str, ...] | None) -> list[tuple[str, ...]]:
    return [group for group in groups if group is not None]


_NODE_ORDERS = (
    (
        "kill",
        True,
        "Kill a node's process (kill -9).",
        "Kill the processes of nodes with kill -9, and start them again after --for. Data that was written survives, even if it "
        "was not synced; `power-loss` loses it.",
        ("kill leader --for 5s", "kill broker-1,broker-2"),
    ),
    (
        "power-loss",
        True,
        "Cut the power to a node's disk.",
        "Cut the power to the disks of nodes: their processes end, and data that was not synced is lost. After --for or `heal` "
        "the power returns and the nodes start. Needs a cluster of `kraftlab up --allow-chaos --own-disks`.",
        ("power-loss leader --for 3s", "power-loss all --for 1s"),
    ),
    (
        "pause",
        True,
        "Pause a node's process (SIGSTOP).",
        "Pause the processes of nodes with SIGSTOP: they keep their connections and do not answer.",
        ("pause leader --for 3s",),
    ),
    ("resume", False, "Resume a paused node.", "Resume paused nodes.", ("resume all",)),
    (
        "restart",
        False,
        "Stop a node gracefully and start it again.",
        "Stop nodes gracefully, one after the other, then start them all. Killed nodes are only started.",
        ("restart broker-1",),
    ),
)
"""(name, takes --for, short help, help, examples)."""

_DISK_ORDERS = (
    (
        "fail-disk",
        True,
        "Let a log directory of a broker fail with I/O errors.",
        "Let every file call in a log directory of brokers fail (EIO), as on a broken disk. DIRECTORY is its path, or the last "
        "part of that, such as d1. The broker takes it offline at its next file call there, after at most 5 s; `kraftlab "
        "log-dirs` shows it. It stays offline after --for or `heal` until `kraftlab log-dirs --online`, or until the broker "
        "restarts. Needs Linux and a C compiler.",
        ("fail-disk broker-3 d1 --for 5s", "fail-disk brokers d0"),
    ),
    (
        "fill-disk",
        True,
        "Make a node, or one of its log directories, run out of space.",
        "Make every file write of nodes fail, as if their disks were full; their log files get no lines meanwhile. With "
        "DIRECTORY, only writes in that log directory fail, and nothing goes offline. Linux only; DIRECTORY needs a C compiler.",
        ("fill-disk broker-1 --for 10s", "fill-disk broker-3 d1 --for 10s"),
    ),
    (
        "free-disk",
        False,
        "Give a node its disk space back.",
        "Give nodes their disk space back, or only one log directory of each.",
        ("free-disk broker-1", "free-disk broker-3 d1"),
    ),
)
"""As `_NODE_ORDERS`. `fail-disk` needs a directory."""


def _node_command(
    name: str, stands: bool, short: str, text: str, examples: tuple[str, ...], *parameters: Callable[[Any], Any]
) -> click.Command:
    """Make a command with these parameters after the nodes."""

    def run(nodes: tuple[str, ...], data: str, as_json: bool, **details: Any) -> int:
        return _report(_send_order(data, name, (nodes,), **details), as_json, name)

    run.__doc__ = text
    for parameter in (*([_for] if stands else []), *parameters, _nodes()):
        run = parameter(run)
    return _command(name, short, *examples)(run)


@_command(
    "clock",
    "Make the clock of a node run fast, run slow, or jump.",
    "clock leader --rate 3 --for 10s",
    "clock followers --rate 0.5",
    "clock broker-1 --jump 30s",
)
@_nodes()
@_for
@click.option("--rate", type=_rate, metavar="N", help="Speed of the clock: 3 is three times as fast; 0.001 to 1000.")
@click.option("--jump", "jump_ms", type=_time, metavar="TIME", help="Step the clock forward by TIME, once; cannot be undone.")
def clock(
    nodes: tuple[str, ...], for_ms: float | None, rate: float | None, jump_ms: float | None, data: str, as_json: bool
) -> int:
    """Make the monotonic clocks of nodes run fast or slow, or jump ahead as after a suspend. Give --rate or --jump.

    Timeouts, sessions, elections and the timestamps in the metadata log use this clock.
    """
    if (rate is None) is (jump_ms is None):
        raise click.UsageError("give either --rate or --jump")
    if jump_ms is not None:
        if for_ms is not None:
            raise click.UsageError("--jump cannot be undone; leave --for out")
        return _report(_send_order(data, "clock-jump", (nodes,), jump_ms=jump_ms), as_json)
    return _report(_send_order(data, "clock", (nodes,), for_ms=for_ms, rate=rate), as_json)


@_command("status", "Show nodes and faults.", "status")
def status(data: str, as_json: bool) -> int:
    """Show the nodes of a cluster, and the faults in force with their remaining time."""
    from .break_text import status_lines

    done = _send_order(data, "status")
    assert done.status is not None, "it was asked for"
    out = Output(as_json)
    out.lines(status_lines(done.status))
    out.result(done.status)
    return DONE


COMMANDS: tuple[click.Command, ...] = (
    status,
    cut,
    isolate,
    partition,
    slow,
    lossy,
    *(_node_command(*row) for row in _NODE_ORDERS),
    *(_node_command(*row, _directory(required=row[0] == "fail-disk")) for row in _DISK_ORDERS),
    clock,
    heal,
)

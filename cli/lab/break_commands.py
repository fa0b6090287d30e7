"""`kraftlab cluster cut|heal|kill|…`: breaks a cluster that runs on this machine, by name, and says what was done.

Nothing is done here: the process of `kraftlab up --allow-chaos` carries orders out and undoes them, so it does not matter how a
command ends. Names are offered from what stands in the cluster's directory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..completion.values import offer_words
from ..output import DONE, Output, json_option

if TYPE_CHECKING:
    from kraftlab.lab.faults.orders import Done

F = TypeVar("F", bound=Callable[..., object])

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_TIME = re.compile(r"([0-9]{1,12}(?:\.[0-9]+)?)(ms|s|m|h)")


def _time(text: str) -> float:
    """Milliseconds of `500ms`, `5s`, `2m`, `1h`."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no time; write 500ms, 5s, 2m or 1h")
    return float(match[1]) * _UNITS_MS[match[2]]


def _chance(text: str) -> float:
    """0.2 of `20%` and of `0.2`."""
    try:
        chance = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        chance = -1.0
    if not 0 <= chance <= 1:
        raise click.BadParameter(f"{text!r} is no chance; write 20% or 0.2")
    return chance


def _rate(text: str) -> float:
    """How many times as fast: 3, 0.5."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate):
        raise click.BadParameter(f"{text!r} is no rate; write 3 or 0.5")
    return rate


def _names(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Names in one word, with commas between."""
    return tuple(name for name in text.split(",") if name) if isinstance(text, str) else text


def _names_there(context: click.Context) -> tuple[str, ...]:
    """Return the names of nodes in the cluster of --data, nothing if no cluster was laid out there."""
    from kraftlab.lab import ClusterError, contexts, layout
    from kraftlab.lab.faults.names import names_of

    try:
        plan = layout.load(Path(context.params.get("data") or next(iter(contexts.running()), ".")))
    except ClusterError:
        return ()
    return names_of(plan) if plan is not None else ()


def _nodes(name: str = "nodes", metavar: str = "NODES", **details: Any) -> Callable[[F], F]:
    """An argument of names."""
    return click.argument(name, type=_names, metavar=metavar, shell_complete=offer_words(_names_there), **details)


def _newest(context: click.Context, parameter: click.Parameter, data: str | None) -> str | None:
    """Return `data`, by default the directory of the newest cluster that is up. UsageError if no cluster is up."""
    from kraftlab.lab import contexts

    if data is not None or context.resilient_parsing:
        return data
    if not (directories := contexts.running()):
        message = "Missing option '--data'. No cluster is up; start one with: kraftlab up --allow-chaos --data DIR"
        raise click.UsageError(message, context)
    return str(directories[0])


_data = click.option(
    "--data",
    type=click.Path(),
    metavar="DIR",
    callback=_newest,
    help="The directory of a cluster that `kraftlab up --allow-chaos` runs. Default: the newest that is up.",
)
_for = click.option(
    "--for", "for_ms", type=_time, metavar="TIME", help="Undo it after that time, even if this command is gone by then."
)
_one_way = click.option("--one-way", is_flag=True, help="Only what the first sends; not what it is sent.")
_drop = click.option("--drop", is_flag=True, help="What waits on a cut link is lost when it is healed, instead of coming late.")


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  kraftlab cluster {line} --data /tmp/lab" for line in lines)


def _command(name: str, short_help: str, *examples: str) -> Callable[[F], click.Command]:
    def make(function: F) -> click.Command:
        command = click.command(name, short_help=short_help, epilog=_examples(*examples))
        return command(_data(json_option(function)))

    return make


def _give(data: str, order: str, names: Any = (), **details: Any) -> Done:
    from kraftlab.lab.faults.caller import give
    from kraftlab.lab.faults.orders import Order

    return give(Path(data), Order(order, tuple(names), **details))


def _report(done: Done, as_json: bool) -> int:
    import msgspec

    out = Output(as_json)
    undone = f"; undone after {done.undone_after_ms / 1000:g} s" if done.undone_after_ms is not None else ""
    out.lines([f"{done.text}{undone}"])
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
@click.option("--reset", is_flag=True, help="Connections break at once, instead of hanging.")
@_drop
def cut(first: tuple[str, ...], second: tuple[str, ...], data: str, as_json: bool, **details: object) -> int:
    """Cut the links between two nodes, or two lists of them: connections seem to live, and nothing gets through."""
    return _report(_give(data, "cut", (first, second), **details), as_json)


@_command(
    "isolate",
    "Cut a node off from all others.",
    "isolate leader --for 5s",
    "isolate broker-1 --one-way",
)
@_nodes()
@_for
@_one_way
@click.option("--reset", is_flag=True, help="Connections break at once, instead of hanging.")
@_drop
def isolate(nodes: tuple[str, ...], data: str, as_json: bool, **details: object) -> int:
    """Cut a node off from all others. Several that are named stand alone, each."""
    return _report(_give(data, "isolate", (nodes,), **details), as_json)


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
    """Cut the links between groups of nodes; within a group they stay. Who is not named reaches everybody."""
    split = [tuple(part.split(",")) for group in groups for part in ",".join(group).split("|")]
    return _report(_give(data, "partition", split, **details), as_json)


@_command(
    "slow",
    "Delay messages.",
    "slow leader --delay 200ms --jitter 50ms --for 30s",
    "slow controller-3000 controller-3001 --one-way",
)
@_nodes("first")
@_nodes("second", "[NODES]", required=False)
@click.option("--delay", "delay_ms", type=_time, metavar="TIME", default="100ms", show_default=True, help="For every message.")
@click.option(
    "--jitter", "jitter_ms", type=_time, metavar="TIME", default="0ms", show_default=True, help="Up to so much more, by chance."
)
@_for
@_one_way
def slow(first: tuple[str, ...], second: tuple[str, ...] | None, data: str, as_json: bool, **details: object) -> int:
    """Delay the messages between two nodes, or between one and all others. Their order stays."""
    return _report(_give(data, "slow", _given(first, second), **details), as_json)


@_command(
    "lossy",
    "Lose, double or reorder messages.",
    "lossy leader --loss 20% --for 30s",
    "lossy controllers brokers --duplicate 10% --reorder 30%",
)
@_nodes("first")
@_nodes("second", "[NODES]", required=False)
@click.option("--loss", type=_chance, metavar="CHANCE", default=None, help="Messages that never come (20% if nothing is said).")
@click.option("--duplicate", type=_chance, metavar="CHANCE", default="0%", help="Messages that come twice.")
@click.option("--reorder", type=_chance, metavar="CHANCE", default="0%", help="Messages that later ones overtake.")
@_for
@_one_way
def lossy(
    first: tuple[str, ...], second: tuple[str, ...] | None, loss: float | None, data: str, as_json: bool, **details: object
) -> int:
    """Lose, double or reorder messages between two nodes, or between one and all others. Whole messages, by chance."""
    loss = (0.0 if details["duplicate"] or details["reorder"] else 0.2) if loss is None else loss
    return _report(_give(data, "lossy", _given(first, second), loss=loss, **details), as_json)


@_command(
    "heal",
    "Undo what was broken.",
    "heal",
    "heal leader followers --drop",
    "heal broker-1",
)
@_nodes("first", "[NODES", required=False)
@_nodes("second", "[NODES]]", required=False)
@_one_way
@_drop
def heal(first: tuple[str, ...] | None, second: tuple[str, ...] | None, data: str, as_json: bool, **details: object) -> int:
    """Undo everything that these commands broke; or what concerns a node; or the links between two.

    Nodes that were killed are started, paused ones go on, and links that were cut deliver what they held.
    """
    return _report(_give(data, "heal", _given(first, second), **details), as_json)


def _given(*groups: tuple[str, ...] | None) -> list[tuple[str, ...]]:
    return [group for group in groups if group is not None]


_NODE_ORDERS = (
    (
        "kill",
        True,
        "Kill a node's process (kill -9).",
        "Kill the processes of nodes with kill -9, and start them again after --for. What a process has written survives, since "
        "the machine goes on: `power-loss` is something else.",
        ("kill leader --for 5s", "kill broker-1,broker-2"),
    ),
    (
        "power-loss",
        True,
        "Take the power of a node's disk.",
        "Take the power of the disks of nodes: their processes are gone, and with them all that was written and not synced. With "
        "--for, or when it is healed, the power comes back and the nodes start. Needs a cluster of `kraftlab up --allow-chaos "
        "--own-disks`.",
        ("power-loss leader --for 3s", "power-loss all --for 1s"),
    ),
    (
        "pause",
        True,
        "Stop a node's process in its tracks.",
        "Let the processes of nodes stand still (SIGSTOP): they keep their connections and answer nothing.",
        ("pause active --for 3s",),
    ),
    ("resume", False, "Let a paused node go on.", "Let nodes go on that were paused.", ("resume all",)),
    (
        "restart",
        False,
        "Stop a node as one does, and start it.",
        "Stop nodes gracefully, one after the other, and start all of them. Those that were killed are just started.",
        ("restart broker-1",),
    ),
    (
        "fill-disk",
        True,
        "Let a node run out of space.",
        "Let nodes write no file any more, as if all their disks were full. Their own logs are silent meanwhile. Needs Linux.",
        ("fill-disk broker-1 --for 10s",),
    ),
    ("free-disk", False, "Give a node its space back.", "Give nodes their space back.", ("free-disk broker-1",)),
)
"""(name, whether it stands until it is undone, what it does in short, at length, examples)."""


def _node_command(name: str, stands: bool, short: str, text: str, examples: tuple[str, ...]) -> click.Command:
    def run(nodes: tuple[str, ...], data: str, as_json: bool, **details: Any) -> int:
        return _report(_give(data, name, (nodes,), **details), as_json)

    run.__doc__ = text
    return _command(name, short, *examples)(_nodes()(_for(run) if stands else run))


@_command(
    "clock",
    "Let the clock of a node run wrong.",
    "clock leader --rate 3 --for 10s",
    "clock followers --rate 0.5",
    "clock broker-1 --jump 30s",
)
@_nodes()
@_for
@click.option("--rate", type=_rate, metavar="N", help="It runs N times as fast as others, 0.001 to 1000.")
@click.option("--jump", "jump_ms", type=_time, metavar="TIME", help="It jumps ahead by that, once.")
def clock(
    nodes: tuple[str, ...], for_ms: float | None, rate: float | None, jump_ms: float | None, data: str, as_json: bool
) -> int:
    """Let the clocks by which nodes wait and measure time run fast or slow, or jump ahead as after a suspend.

    Time outs, sessions and elections go by it, and the times that a controller writes into the log.
    """
    if (rate is None) is (jump_ms is None):
        raise click.UsageError("give either --rate or --jump")
    if jump_ms is not None:
        if for_ms is not None:
            raise click.UsageError("--jump happens once and is not undone, so leave --for out")
        return _report(_give(data, "clock-jump", (nodes,), jump_ms=jump_ms), as_json)
    return _report(_give(data, "clock", (nodes,), for_ms=for_ms, rate=rate), as_json)


@_command("status", "Show nodes, and what is broken.", "status")
def status(data: str, as_json: bool) -> int:
    """Show the nodes of a cluster that may be broken, what is broken, and for how long."""
    from .break_text import status_lines

    done = _give(data, "status")
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
    clock,
    heal,
)

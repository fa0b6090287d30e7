"""The options that `kraftlab chaos test` and `test-all` share, and the trials that they describe."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import click

from kraftlab.cli.output import json_option

from ..command import FiniteRange, WrongUse
from ..faults.kinds import ALL, KINDS
from ..faults.networks.back_ends import LINKS, NETS
from ..runs import Trial
from ..store import DEFAULT_STORE
from ..workload import CLIENTS, KAFKA_PYTHON, OWN, Options
from ..workloads import KAFKA_CLIENTS, KAFKA_ONLY, UnknownWorkload, workload_named
from ..worlds.world import WORLDS, kinds_of, left_out


class NumberOfWorkers(click.ParamType):  # type: ignore[type-arg]
    """A number of workers: 10, or 2n for two per node."""

    name = "N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        digits = text.removesuffix("n") or "1"
        if not digits.isdecimal() or int(digits) < 1:
            self.fail(f"invalid number of workers {value}: expected e.g. 10, or 2n for two per node", param, ctx)
        return text


def workers(text: str, nodes: int) -> int:
    """Return the number of workers that "10" or "2n" means in a cluster of so many nodes."""
    return int(text.removesuffix("n") or "1") * (nodes if text.endswith("n") else 1)


def split_names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def shared_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options that both commands have."""
    for option in reversed(
        (
            click.option(
                "--controllers",
                type=click.IntRange(min=1),
                metavar="N",
                help="Number of controllers (default: 3, or as many as the workload needs).",
            ),
            click.option(
                "--brokers", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="Number of brokers."
            ),
            click.option(
                "--world",
                type=click.Choice(WORLDS),
                default="real",
                show_default=True,
                help="real: processes; shell: their code in one process on a mock clock; simulated: the simulator.",
            ),
            click.option(
                "--net",
                type=click.Choice(tuple(NETS)),
                default=LINKS,
                show_default=True,
                help="Means of breaking links. links: proxies between nodes; netns: a network namespace per node. "
                "`kraftlab chaos doctor` shows which ones work here.",
            ),
            click.option(
                "--client",
                type=click.Choice(CLIENTS),
                default=OWN,
                show_default=True,
                help="Client that executes the operations. kafka-python: over the Kafka protocol, with --world real. Groups "
                "are always played by kafka-python.",
            ),
            click.option(
                "--secure",
                is_flag=True,
                help="Run on clusters as of `kraftlab up --secure`, with --world real: TLS on all links, and all clients log in.",
            ),
            click.option(
                "--trace",
                is_flag=True,
                help="Keep each node's trace, with --world real, for `kraftlab trace check RUN`. Simulated runs always have one.",
            ),
            click.option(
                "--rate",
                type=FiniteRange(min=0),
                default=200.0,
                show_default=True,
                metavar="N",
                help="Operations per second of all workers together; 0: as fast as possible.",
            ),
            click.option(
                "--concurrency",
                type=NumberOfWorkers(),
                default="2n",
                show_default=True,
                help="Number of workers (clients), for example 10, or 2n for two per node.",
            ),
            click.option(
                "--ops-per-key",
                type=click.IntRange(min=1),
                default=120,
                show_default=True,
                metavar="N",
                help="Approximate number of operations on a key before workers move on to the next.",
            ),
            click.option("--seed", metavar="S", help="Seed of all random choices (default: a random one)."),
            click.option(
                "--store",
                type=click.Path(),
                metavar="DIR",
                default=DEFAULT_STORE,
                show_default=True,
                help="Directory in which runs are stored.",
            ),
            json_option,
        )
    ):
        command = option(command)
    return command


def seeds_from(seed: str | None, count: int) -> list[str]:
    """Return so many seeds, starting with the given one."""
    first = str(secrets.randbelow(1 << 32)) if seed is None else seed
    if first.isdecimal():
        return [str(int(first) + number) for number in range(count)]
    return [first, *(f"{first}-{number}" for number in range(2, count + 1))]


def new_trial(
    name: str,
    nemeses: tuple[str, ...],
    seed: str,
    time_s: float,
    *,
    controllers: int | None,
    brokers: int,
    world: str,
    rate: float,
    concurrency: str,
    ops_per_key: int,
    net: str,
    client: str = OWN,
    secure: bool = False,
    trace: bool = False,
    leave_running: bool = False,
) -> Trial:
    """Return the trial. WrongUse if a name is unknown or the combination does not exist."""
    try:
        workload = workload_named(name)
    except UnknownWorkload as error:
        raise WrongUse(str(error)) from None
    controllers = controllers or workload.controllers
    client = KAFKA_PYTHON if name in KAFKA_ONLY else client
    options = Options(
        seed=seed,
        time_s=time_s,
        rate=rate,
        concurrency=workers(concurrency, controllers + brokers),
        controllers=controllers,
        brokers=brokers,
        ops_per_key=ops_per_key,
        client=client,
        secure=secure,
        trace=trace,
    )
    if world in workload.not_in:
        others = ", ".join(sorted(set(WORLDS) - workload.not_in.keys()))
        raise WrongUse(f"{name} does not run in the world {world!r}: {workload.not_in[world]}; it runs in: {others}")
    if unknown := sorted({*nemeses}.difference({ALL}, *map(kinds_of, WORLDS))):
        raise WrongUse(f"unknown nemesis {', '.join(unknown)}; known: {', '.join(kinds_of(world))}, all")
    if strange := sorted({*nemeses}.difference(kinds_of(world), {ALL})):
        raise WrongUse(f"{', '.join(strange)} is not available in --world {world}; available: {', '.join(kinds_of(world))}, all")
    if client != OWN and name not in KAFKA_CLIENTS:
        raise WrongUse(f"{name} is not played by --client {client}; it plays: {', '.join(KAFKA_CLIENTS)}")
    if client != OWN and world != "real":
        raise WrongUse(f"--client {client} is for real processes, not for --world {world}; leave it out")
    if secure and world != "real":
        raise WrongUse(f"--secure is for real processes, not for --world {world}, which has no connections; leave it out")
    if trace and world != "real":
        why = "which always keeps one" if world == "simulated" else "whose nodes write none"
        raise WrongUse(f"--trace is for real processes, not for --world {world}, {why}; leave it out")
    unwanted = left_out(net, client=client, secure=secure)
    if refused_kinds := unwanted.keys() & {*nemeses}:
        reason = unwanted[min(refused_kinds)]
        kinds = [kind for kind in KINDS if kind in refused_kinds and unwanted[kind] == reason]
        is_one = len(kinds) == 1
        raise WrongUse(f"{', '.join(kinds)} {'is' if is_one else 'are'} {reason}; leave {'it' if is_one else 'them'} out")
    if world != "real" and net != LINKS:
        raise WrongUse(f"--net {net} is for real processes, not for --world {world}; leave it out")
    return Trial(name, world, nemeses, options, leave_running=leave_running, net=net)

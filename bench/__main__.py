"""Command `python -m bench [NAME] [--json] [--quick] [arguments of that measurement]`; without a name: all. `--help` lists the
names.
"""

from __future__ import annotations

import sys

import click

from kraftlab.cli.command_groups import LazyGroup
from kraftlab.cli.main import run
from kraftlab.common.exit_codes import DONE

MEASUREMENTS = {
    "commit": "bench.commit:main",
    "failover": "bench.failover:main",
    "broker-failover": "bench.broker_failover:main",
    "start": "bench.start:main",
    "metrics": "bench.metrics:main",
    "console": "bench.console:main",
    "commands": "bench.commands:main",
    "moves": "bench.moves:main",
    "snapshot": "bench.snapshot:main",
    "catch-up": "bench.catch_up:main",
    "changes": "bench.changes:main",
    "replication": "bench.replication:main",
    "compaction": "bench.compaction:main",
    "tls": "bench.tls:main",
    "handshakes": "bench.handshakes:main",
    "kafka-clients": "bench.kafka_clients:main",
    "large-cluster": "bench.large_cluster:main",
    "pipeline": "bench.pipeline:main",
    "sim": "bench.sim:main",
    "chaos": "bench.chaos:main",
    "checkers": "bench.checkers:main",
}
LONG = {"soak": "bench.soak:main"}
"""Takes minutes, and runs only by name."""


@click.group(
    "bench", cls=LazyGroup, modules=MEASUREMENTS | LONG, invoke_without_command=True, epilog="Exit codes: docs/exit-codes.md."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per measurement, a line each.")
@click.option("--quick", is_flag=True, help="Measure less, as a smoke test.")
@click.pass_context
def bench(context: click.Context, /, as_json: bool, quick: bool) -> int:
    """Measure kraftlab on this machine: one measurement, with its own arguments, or all."""
    if context.invoked_subcommand is not None:
        return DONE
    worst = DONE
    for name in MEASUREMENTS:
        if not as_json:
            click.echo(f"\n{name}\n")
        options = [option for option, given in (("--json", as_json), ("--quick", quick)) if given]
        command = bench.get_command(context, name)
        assert command is not None
        worst = max(worst, command.main(options, f"python -m bench {name}", standalone_mode=False))
    return worst


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], bench, "python -m bench"))

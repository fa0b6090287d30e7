"""Help for `kraftlab node`; `lab/node.py` runs it."""

from __future__ import annotations

import click

from kraftlab.lab import node as process


@click.command(
    "node",
    epilog="""\b
Examples:
  kraftlab storage format -t "$(kraftlab storage random-uuid)" -c server.properties --standalone
  kraftlab node --config server.properties""",
)
@click.option("--config", "-c", metavar="FILE", help="A Kafka-style server.properties.")
@click.option("--until-stdin-closes", is_flag=True, help="Stop when standard input ends (for supervisors).")
def node(config: str | None, until_stdin_closes: bool) -> None:
    """Run a controller or a broker, as process.roles says, in the foreground. SIGTERM or Ctrl-C stops it gracefully."""
    process.main([*(["--config", config] if config else []), *(["--until-stdin-closes"] if until_stdin_closes else [])])

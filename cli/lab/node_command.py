"""Help for `kraftlab node`; `lab/node.py` runs it."""

from __future__ import annotations

import click

from kraftlab.lab import node as process


@click.command(
    "node",
    epilog="""\b
Examples:
  kraftlab storage format -t "$(kraftlab storage random-uuid)" -c server.properties --standalone
  kraftlab node --config server.properties
  CLUSTER_ID=… KAFKA_NODE_ID=0 KAFKA_PROCESS_ROLES=broker … kraftlab node --environment   # docs/running-nodes.md""",
)
@click.option("--config", "-c", metavar="FILE", help="A Kafka-style server.properties.")
@click.option("--environment", is_flag=True, help="Take the properties from variables KAFKA_…, as Apache Kafka's image does.")
@click.option("--until-stdin-closes", is_flag=True, help="Stop when standard input ends (for supervisors).")
def node(config: str | None, environment: bool, until_stdin_closes: bool) -> None:
    """Run a controller or a broker, as process.roles says, in the foreground. SIGTERM or Ctrl-C stops it gracefully."""
    process.main(
        [
            *(["--config", config] if config else []),
            *(["--environment"] if environment else []),
            *(["--until-stdin-closes"] if until_stdin_closes else []),
        ]
    )

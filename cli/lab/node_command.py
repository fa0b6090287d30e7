"""Help for `kraftlab controller` and `kraftlab broker`; `lab/node.py` runs them."""

from __future__ import annotations

import click

from kraftlab.lab import node


def _command(role: str, format_option: str = "") -> click.Command:
    @click.command(
        role,
        short_help=f"Run a {role} in the foreground.",
        epilog=f"""\b
Examples:
  kraftlab storage format --cluster-id "$(kraftlab storage random-uuid)" --config server.properties{format_option}
  kraftlab {role} --config server.properties""",
    )
    @click.option("--config", "-c", required=True, metavar="FILE", help="A Kafka-style server.properties.")
    @click.option("--until-stdin-closes", is_flag=True, help="Stop when standard input ends (for supervisors).")
    def command(config: str, until_stdin_closes: bool) -> None:
        node.main([role, "--config", config, *(["--until-stdin-closes"] if until_stdin_closes else [])])

    command.help = f"Run a {role} in the foreground. SIGTERM or Ctrl-C stops it gracefully."
    return command


controller = _command("controller", " --standalone")
broker = _command("broker")

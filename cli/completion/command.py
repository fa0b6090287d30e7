"""`kraftlab completion`: a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    "completion",
    epilog="""\b
Examples:
  eval "$(kraftlab completion bash)"
  kraftlab completion fish > ~/.config/fish/completions/kraftlab.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> None:
    """Print the completion script for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None, "the choices are click's own"
    click.echo(kind(context.find_root().command, {}, "kraftlab", "_KRAFTLAB_COMPLETE").source())

"""`kraftlab completion`: a shell's completion script."""

from __future__ import annotations

import click

from ..main import COMPLETION
from .shells import shell as shell_named


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
    click.echo(shell_named(shell)(context.find_root().command, {}, "kraftlab", COMPLETION).source())

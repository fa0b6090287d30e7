"""Groups of commands that say which one was meant when a name is mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import click


class CommandGroup(click.Group):
    """Every group is one of these: click itself looks only at commands that are loaded already, and not in all its versions."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}.{_did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """Those that begin so, else those that look alike; empty if none does."""
    near = [other for other in known if other.startswith(name)] or get_close_matches(name.lower(), known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near and name else ""

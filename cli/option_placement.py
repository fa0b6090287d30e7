"""Options of a group of commands on either side of the subcommand's name.

Kafka's tools disagree about the place of `--bootstrap-server`: `kafka-metadata-quorum` and `kafka-features` want it before the
subcommand, `kafka-cluster` after it. Groups of this class take the options of the cluster and the user on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from .command_groups import CommandGroup

_PLACED = ("--bootstrap-server", "--data", "--bootstrap-controller", "--user", "--command-config")


class AddressedGroup(CommandGroup):
    """A group whose subcommands talk to a cluster."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.placed(ctx, args))

    def placed(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Return the same arguments, with each option on the side that declares it."""
        own = _names(self.get_params(context))
        at = _subcommand_index(arguments)
        subcommand = self.get_command(context, arguments[at]) if at < len(arguments) else None
        if subcommand is None:
            return arguments
        theirs = _names(subcommand.get_params(context))
        before, to_move_back = _split(arguments[:at], own, theirs)
        behind, to_move_forward = _split(arguments[at + 1 :], theirs, own)
        return [*before, *to_move_forward, arguments[at], *to_move_back, *behind]


def _names(parameters: Sequence[click.Parameter]) -> frozenset[str]:
    return frozenset(name for parameter in parameters for name in parameter.opts)


def _subcommand_index(arguments: Sequence[str]) -> int:
    """Return the index of the subcommand: the first word that is neither an option nor the value of an option of `_PLACED`."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _PLACED else 1
    return at


def _split(arguments: Sequence[str], here: frozenset[str], there: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that stay, and the options with their values that only the other side declares."""
    staying: list[str] = []
    moving: list[str] = []
    at = 0
    while at < len(arguments):
        name, equals, _ = arguments[at].partition("=")
        if name in _PLACED and name in there and name not in here:
            width = 1 if equals else 2
            moving += arguments[at : at + width]
            at += width
        else:
            staying.append(arguments[at])
            at += 1
    return staying, moving

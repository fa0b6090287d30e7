"""The servers that a `kraftlab metadata-quorum` command is addressed to."""

from __future__ import annotations

from typing import NamedTuple

from ..output import CommandFailed


class Target(NamedTuple):
    """Options given before the subcommand."""

    bootstrap_server: str | None
    bootstrap_controller: str | None
    command_config: str | None

    def servers(self) -> str:
        """Return the servers to ask. CommandFailed unless exactly one of the two options is given."""
        if (self.bootstrap_server is None) == (self.bootstrap_controller is None):
            raise CommandFailed(
                "Exactly one of --bootstrap-server and --bootstrap-controller is needed, before the subcommand\n"
                "See: kraftlab metadata-quorum --help"
            )
        return self.bootstrap_server or self.bootstrap_controller or ""

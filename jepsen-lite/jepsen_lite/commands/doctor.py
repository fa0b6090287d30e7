"""`kraftlab chaos doctor`: the faults that this machine can have, tested now."""

from __future__ import annotations

import click
import msgspec

from ..faults import capabilities
from ..faults.kinds import KINDS
from ..faults.networks.back_ends import NETS


@click.command(short_help="List the nemeses that work on this machine, and what the others need.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def doctor(as_json: bool) -> None:
    """Test which nemeses (kinds of faults) this machine supports, and say what the others need.

    The tests leave nothing behind.
    """
    found = capabilities.probe()
    nemesis_states = capabilities.nemesis_states(found)
    if as_json:
        click.echo(msgspec.json.encode({"nemeses": nemesis_states, "capabilities": found}).decode())
        return
    width = max(len(name) for name in (*capabilities.CAPABILITIES, *KINDS))
    by_name = {row.name: row for row in found}
    click.echo("Nemeses:")
    for state in nemesis_states:
        click.echo(f"  {'on ' if state.is_on else 'off'}  {state.name:{width}}  {state.summary}")
        for name in state.lacks:
            click.echo(f"       {'':{width}}  needs {name}: {by_name[name].detail}; {state.install}")
    click.echo("Back ends that break links (--net):")
    for net in NETS.values():
        lacks = [by_name[name] for name in net.needs if not by_name[name].is_on]
        click.echo(f"  {'off' if lacks else 'on '}  {net.name:{width}}  {net.summary}")
        for row in lacks:
            click.echo(f"       {'':{width}}  needs {row.name}: {row.detail}; {row.install}")
    click.echo("This machine:")
    for row in found:
        click.echo(f"  {'on ' if row.is_on else 'off'}  {row.name:{width}}  {row.summary}: {row.detail}")

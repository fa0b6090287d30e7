"""`kraftlab chaos clean`: undoes what runs have left on this machine that were killed."""

from __future__ import annotations

import click

from ..command import HarnessError
from ..nemeses import ledger


@click.command(short_help="Undo what killed runs have left behind.")
@click.option("--dry-run", is_flag=True, help="Only say what is left.")
def clean(dry_run: bool) -> None:
    """Ends processes, unmounts disks and removes directories that runs have left which were killed; networks end with processes.

    Runs write down what they make before they make it, in $XDG_STATE_HOME/kraftlab/chaos (~/.local/state/kraftlab/chaos); only
    that is touched, and nothing of a run that still goes on.
    """
    found = list(ledger.clean(dry_run=dry_run))
    for cleaned in found:
        if cleaned.is_running:
            click.echo(f"run {cleaned.run} goes on; nothing of it was touched")
        for what in cleaned.undone:
            click.echo(f"run {cleaned.run}: {what}{'' if dry_run or cleaned.faults else ': gone'}")
    if not any(cleaned.undone or cleaned.is_running or cleaned.faults for cleaned in found):
        click.echo("nothing is left of earlier runs")
    faults = [fault for cleaned in found for fault in cleaned.faults]
    if faults:
        raise HarnessError("not everything could be cleaned: " + "; ".join(faults))

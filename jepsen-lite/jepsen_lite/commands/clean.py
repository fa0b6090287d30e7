"""`kraftlab chaos clean`: undo what killed runs have left on this machine."""

from __future__ import annotations

import click

from kraftlab.checking.scratch_directory import remove_abandoned
from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import FAILED

from ..command import HarnessError
from ..faults import ledger


@click.command(short_help="Remove faults, processes and files of killed runs.")
@click.option("--dry-run", is_flag=True, help="List the leftovers without removing them.")
@json_option
def clean(dry_run: bool, as_json: bool) -> None:
    """End processes, unmount disks and remove directories that killed runs left behind. Networks end with their processes.

    Runs record everything before they create it, in $XDG_STATE_HOME/kraftlab/chaos (~/.local/state/kraftlab/chaos). Only recorded
    things are removed, and nothing of a run that is still in progress.
    """
    found = list(ledger.clean(dry_run=dry_run))
    output = Output(as_json)
    for cleaned in found:
        if cleaned.is_running:
            output.lines([f"run {cleaned.run} is still in progress; nothing of it was touched"])
        output.lines(f"run {cleaned.run}: {what}{'' if dry_run or cleaned.faults else ': gone'}" for what in cleaned.undone)
    if not dry_run:
        remove_abandoned()
    if not any(cleaned.undone or cleaned.is_running or cleaned.faults for cleaned in found):
        output.lines(["nothing is left of earlier runs"])
    output.result({"dry_run": dry_run, "runs": found})
    faults = [fault for cleaned in found for fault in cleaned.faults]
    if faults and as_json:
        raise SystemExit(FAILED)  # the JSON document has the faults
    if faults:
        raise HarnessError("some leftovers could not be removed: " + "; ".join(faults))

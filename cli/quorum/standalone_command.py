"""`kraftlab metadata-quorum force-standalone`: give up a lost majority."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE

from ..output import CommandFailed, Output, json_option
from .standalone_text import ForcingView, VoterView, done_lines, plan_lines, warning_lines

if TYPE_CHECKING:
    from kraftlab.config.force_standalone import StandaloneController
    from kraftlab.quorum.storage.standalone import ForcedReport


@click.command(
    "force-standalone",
    short_help="Recover from a lost majority: one survivor continues alone.",
    epilog="""\b
Examples, on a stopped controller:
  kraftlab metadata-quorum force-standalone --config controller.properties --dry-run
  kraftlab metadata-quorum force-standalone --config controller.properties
  kraftlab metadata-quorum force-standalone --config controller.properties --confirm CLUSTER-ID   # for scripts""",
)
@click.option("--config", "-c", required=True, metavar="FILE", help="The survivor's server.properties.")
@click.option("--dry-run", is_flag=True, help="Show what would be kept and what may be lost, without changing anything.")
@click.option("--confirm", metavar="CLUSTER-ID", help="Id of this cluster: confirms without a prompt.")
@json_option
def force_standalone(config: str, dry_run: bool, confirm: str | None, as_json: bool) -> int:
    """Make a stopped controller the only voter of its quorum, after a majority of the voters is lost for good.

    Records that the lost majority committed beyond the end of this controller's log are lost. The new quorum fences members of
    the old one: brokers load the metadata again; other controllers must be formatted and added again.
    """
    from kraftlab.config.force_standalone import forcing
    from kraftlab.config.models import load_controller

    out = Output(as_json)
    with forcing(load_controller(config)) as work:
        view = _view(work, work.plan())
        out.lines(plan_lines(view))
        if dry_run:
            out.lines(["DRY RUN: nothing was changed."])
            out.result({"dry_run": True, "plan": view})
            return DONE
        if confirm is None:
            out.lines(warning_lines(view))
            confirm = _ask(as_json)
        if confirm != view.cluster_id:
            raise CommandFailed(f"Error: {confirm!r} is not the id of this cluster, {view.cluster_id}; nothing was changed")
        view = _view(work, work.carry_out())
    out.lines(done_lines(view))
    out.result({"dry_run": False, "plan": view})
    return DONE


def _ask(as_json: bool) -> str:
    """Return the cluster id that the user types, without the end of the line."""
    if not as_json:
        click.echo("Type the cluster id to continue: ", nl=False)
    answer = "" if as_json else sys.stdin.readline()
    if not answer:
        raise CommandFailed("Error: not confirmed, nothing was changed; in scripts use --confirm CLUSTER-ID")
    return answer.strip()


def _view(work: StandaloneController, report: ForcedReport) -> ForcingView:
    from kraftlab.common.uuids import to_text

    own_key = work.key
    return ForcingView(
        work.cluster_id,
        own_key.node_id,
        report.generation,
        report.epoch,
        report.start_offset,
        report.end_offset,
        report.high_watermark,
        report.last_append_time_ms,
        tuple(
            VoterView(voter.key.node_id, to_text(voter.key.directory_id))
            for voter in report.previous_voters.voters
            if not own_key.matches(voter.key)
        ),
        report.was_interrupted,
        not work.config.is_dynamic,
        not report.previous_voters.voters or report.previous_voters.has(own_key),
    )

"""`kraftlab pipeline doctor`: checks whether this machine can run the pipeline, with remedies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE, MACHINE

from ..command import SparkOptions

if TYPE_CHECKING:
    from ..session.doctor import DoctorReport


@click.command(
    "doctor",
    short_help="Check whether this machine can run Spark, and say what to fix.",
    epilog="""\b
Examples:
  kraftlab pipeline doctor
  kraftlab pipeline --master spark://host:7077 doctor --run

\b
Exit code 70: this machine cannot run Spark. Each line with "missing" names a remedy.""",
)
@click.option("--run", "try_it", is_flag=True, help="Also start Spark and run a small job in its Python workers.")
@json_option
@click.pass_obj
def doctor(options: SparkOptions, try_it: bool, as_json: bool) -> int:
    """Check Spark's requirements: packages, Java, the workers' Python, memory, room on disk."""
    from ..session.doctor import DoctorReport, State, examine, run

    report = examine(master=options.master, conf=options.conf)
    if try_it and report.can_run:
        last = run(options.conf, options.master)
        report = DoctorReport(last.state is not State.MISSING, [*report.checks, last])
    output = Output(as_json)
    output.lines(_lines(report))
    output.result(msgspec.to_builtins(report))
    return DONE if report.can_run else MACHINE


def _lines(report: DoctorReport) -> Iterator[str]:
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        first, *rest = check.found.splitlines()
        yield f"{check.state.value:<8} {check.name:<{width}}  {first}"
        yield from (f"{'':<{width + 9}}  {line.strip()}" for line in rest)
        if check.remedy:
            yield f"{'':<{width + 9}}  → {check.remedy}"
    yield "The pipeline can run here." if report.can_run else "The pipeline cannot run here."

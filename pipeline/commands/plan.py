"""`kraftlab pipeline plan`: plans for the placement of replicas: propose, check, explain, cut into waves, export."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from kraftlab.cli.command_groups import CommandGroup
from kraftlab.cli.connection import caller_options, connect, named_servers, server_option
from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE, FAILED

from ..errors import WrongUse
from .options import cluster_to_ask

if TYPE_CHECKING:
    from ..planning.checks import CheckOptions, Finding, Target
    from ..planning.documents import ClusterDocument
    from ..planning.options import PlanOptions
    from ..planning.plan import PartitionMove, Plan

SHOWN_MOVES = 20
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTP]?)(i?)B?\s*")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

F = TypeVar("F", bound=Callable[..., object])


class _Size(click.ParamType[int]):
    """Bytes, with an optional unit: 50TB, 1.5GiB, 1048576."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _SIZE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not a size: expected e.g. 50TB, 1.5GiB, 1048576", param, ctx)
        number, unit, binary = found.groups()
        size_bytes = float(number) * (1024 if binary else 1000) ** _POWERS[unit]
        if size_bytes >= 1 << 63:
            self.fail(f"{value!r} is more than any disk has; the largest size is 9223 PB", param, ctx)
        return int(size_bytes)


def source_options(command: F) -> F:
    """Add the options of the three sources of a cluster."""
    command = caller_options(command)
    for option in (
        click.option("--lake", metavar="URI", help="Read the cluster from a lake: its newest state and log directory samples."),
        click.option("--input", "input_file", metavar="FILE", help="Read the cluster from a JSON file of `plan cluster`."),
        server_option(),
    ):
        command = option(command)
    return command


@click.group(
    "plan",
    cls=CommandGroup,
    short_help="Plan the placement of replicas: balance, drain, replace, change RF.",
    epilog="""\b
Examples:
  kraftlab pipeline plan propose --output plan.json
  kraftlab pipeline plan explain plan.json --topic orders --partition 3
  kraftlab pipeline plan check plan.json
  kraftlab pipeline plan export plan.json --wave 1 > wave1.json
  kraftlab reassign-partitions --execute --reassignment-json-file wave1.json

\b
Exit code 1: a hard goal is unmet, a request is not fulfilled, or a check failed.""",
)
def plan() -> None:
    """Plan the placement of replicas. Sizes come from DescribeLogDirs, so brokers need no plug-in."""


@plan.command(
    "propose",
    short_help="Make a plan.",
    epilog="""\b
Examples:
  kraftlab pipeline plan propose --output plan.json
  kraftlab pipeline plan propose --drain 3 --output plan.json
  kraftlab pipeline plan propose --input cluster.json --replace 3:7 --rf orders=3 --json
  kraftlab pipeline plan propose --lake file:///lake --goals rack,disk,logdir --eps 0.05 --max-bytes 50TB

\b
--drain, --replace, --rf and --drain-dir move only the named replicas; with --balance the rest is balanced, too.
--add-brokers moves replicas onto these brokers only. Without any of these options everything is balanced.
The same cluster and options give the same plan, byte for byte.

\b
Exit code 1: a hard goal is unmet, or --drain, --drain-dir, --replace or --rf is not fulfilled (see notes).""",
)
@source_options
@click.option("--drain", multiple=True, type=int, metavar="BROKER", help="Move all replicas off this broker; repeatable.")
@click.option(
    "--replace",
    multiple=True,
    metavar="OLD:NEW",
    help="Let broker NEW take the place of broker OLD in every replica list; repeatable.",
)
@click.option("--rf", multiple=True, metavar="TOPIC=N", help="Change a topic's replication factor to N; repeatable.")
@click.option(
    "--add-brokers", multiple=True, metavar="IDS", help="Move replicas onto these brokers, for example 4,5; repeatable."
)
@click.option(
    "--drain-dir",
    multiple=True,
    metavar="BROKER:PATH",
    help="Move all replicas of a log directory to the broker's other ones; repeatable.",
)
@click.option("--balance", is_flag=True, help="Also balance everything else; see below.")
@click.option(
    "--goals",
    metavar="GOALS",
    help="Goals, separated by commas: rack, disk, count, topic, leader, logdir, or full names (default: all).",
)
@click.option(
    "--eps", type=float, default=0.1, show_default=True, help="Allowed deviation from the mean: 0.1 is 10 % above or below."
)
@click.option("--max-bytes", type=_Size(), metavar="SIZE", help="Copy at most this much between brokers, for example 50TB.")
@click.option(
    "--exclude-broker", multiple=True, type=int, metavar="BROKER", help="Move nothing to or from this broker; repeatable."
)
@click.option(
    "--exclude-topic", multiple=True, metavar="TOPIC", help="Do not move this topic; * and ? are wildcards; repeatable."
)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the plan to FILE.")
@click.option(
    "--save", is_flag=True, help="With --lake: save plan, moves and checks in its gold.plans, .plan_moves and .plan_checks."
)
@json_option
def propose(
    input_file: str | None,
    lake: str | None,
    output: Path | None,
    save: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Propose moves that bring the cluster to its goals with the fewest bytes."""
    options = _options(**asked)
    if save and lake is None:
        raise WrongUse("--save needs --lake")
    document = read_cluster_from(input_file, lake)
    from ..planning.explain import move_lines, plan_lines
    from ..planning.plan import encode_plan
    from ..planning.propose import propose as make

    started = time.process_time()
    made = make(document, options)
    seconds = time.process_time() - started
    _note(f"planned in {seconds:.1f} s of processor time")
    if save and lake is not None:
        _save(lake, made, round(1000 * seconds))
    if output is not None:
        output.write_bytes(encode_plan(made) + b"\n")
        _note(f"written to {output}")
    out = Output(as_json)
    out.lines(plan_lines(made))
    if made.moves:
        out.lines(["", *move_lines(made, made.moves[:SHOWN_MOVES]), *_more(made.moves)])
    if as_json:
        sys.stdout.write(encode_plan(made).decode() + "\n")
    undone = made.is_incomplete or made.leaves_in_directories or made.misses_factors
    return FAILED if made.breaks_hard_goals or undone else DONE


def _more(moves: Sequence[PartitionMove]) -> list[str]:
    left = len(moves) - SHOWN_MOVES
    return [f"… and {left} more partitions; see `plan explain FILE --topic T --partition P`"] if left > 0 else []


@plan.command(
    "check",
    short_help="Check a plan, or any reassignment file, with independent code.",
    epilog="""\b
Examples:
  kraftlab pipeline plan check plan.json     # against the cluster for which it was made
  kraftlab pipeline plan check plan.json --bootstrap-server 127.0.0.1:9092     # against the cluster as it is now
  kraftlab pipeline plan check reassignment.json --input cluster.json

\b
Exit code 1: there are errors. Warnings (soft goals) do not count.""",
)
@click.argument("file", metavar="FILE")
@source_options
@json_option
def check(file: str, input_file: str | None, lake: str | None, as_json: bool) -> int:
    """Check a plan, by default against the cluster for which it was made, or a file of Kafka's reassignment tool."""
    from ..planning.checks import CHECKS, ERROR, check

    targets, asked, document = _to_check(file)
    if named_servers() or input_file or lake or document is None:
        document = read_cluster_from(input_file, lake)
    findings = check(document, targets, asked)
    out = Output(as_json)
    out.lines([_finding_line(finding) for finding in findings])
    errors = sum(finding.severity == ERROR for finding in findings)
    out.lines([f"{len(CHECKS)} checks of {len(targets)} partitions: {errors} failed, {len(findings) - errors} warnings"])
    out.result({"checked": len(targets), "findings": msgspec.to_builtins(findings)})
    return FAILED if errors else DONE


def _finding_line(finding: Finding) -> str:
    return f"{finding.severity}: {finding.check}: {finding.count} x; for example: {finding.example}"


def _save(uri: str, made: Plan, ms: int) -> None:
    from ..lake.commits import Lake
    from ..planning.checks import check
    from ..planning.gold_rows import record

    targets, asked = _judged_as(made)
    record(Lake(uri), made, check(made.cluster, targets, asked), ms)
    _note(f"saved into {uri}")


def _judged_as(made: Plan) -> tuple[list[Target], CheckOptions]:
    """Return a plan in the form that its checks take."""
    from ..planning.checks import CheckOptions, Target

    options = made.options
    asked = CheckOptions(
        eps=options.eps,
        rf=options.rf,
        empty=options.emptied,
        empty_dirs=options.drain_dirs,
        untouched=options.exclude_brokers,
        max_bytes=options.max_bytes,
        banded=options.balances,
    )
    return [Target(move.topic, move.partition, move.after, move.dirs, move.before) for move in made.moves], asked


def _to_check(file: str) -> tuple[list[Target], CheckOptions, ClusterDocument | None]:
    """Return a file's targets, its options, and the cluster if the file has it: a plan does, Kafka's file does not."""
    from kraftlab.cli.reassign.plan import PlanError, parse_plan

    from ..planning.checks import CheckOptions, Target
    from ..planning.documents import read_bytes
    from ..planning.plan import FORMAT, read_plan

    data = read_bytes(file)
    if FORMAT.encode() in data[:200]:
        made = read_plan(file)
        return *_judged_as(made), made.cluster
    try:
        placements = parse_plan(data).partitions
    except PlanError as error:
        raise WrongUse(f"{file} is neither a plan nor a reassignment file: {error}") from None
    return [Target(one.topic, one.partition, one.replicas, one.log_dirs) for one in placements], CheckOptions(), None


@plan.command(
    "explain",
    short_help="Show the reason for each move, and the goals.",
    epilog="""\b
Examples:
  kraftlab pipeline plan explain                                        # the goals, and the unsupported ones
  kraftlab pipeline plan explain plan.json --topic orders --partition 3
  kraftlab pipeline plan explain plan.json --all | less""",
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--topic", metavar="TOPIC", help="Only moves of this topic.")
@click.option("--partition", type=int, metavar="N", help="With --topic: only the move of this partition.")
@click.option("--all", "everything", is_flag=True, help="Show all moves, not only the first few.")
@json_option
def explain(file: str | None, topic: str | None, partition: int | None, everything: bool, as_json: bool) -> int:
    """Explain a plan; without FILE, explain the goals."""
    from ..planning.explain import Sentences, goals_known, move_lines, plan_lines
    from ..planning.goals import GOALS, NOT_DONE

    out = Output(as_json)
    if file is None:
        out.lines(goals_known())
        out.result({"goals": msgspec.to_builtins(GOALS), "not_done": [{"goals": names, "why": why} for names, why in NOT_DONE]})
        return DONE
    if partition is not None and topic is None:
        raise WrongUse(f"--partition {partition} needs --topic")
    made = _plan_of(file)
    moves = [one for one in made.moves if topic in (None, one.topic) and partition in (None, one.partition)]
    if topic is not None and not moves:
        name = topic if partition is None else f"{topic}-{partition}"
        out.lines([f"{name} does not move: no goal needs it, or it is excluded"])
    else:
        shown = moves if everything or topic is not None else moves[:SHOWN_MOVES]
        out.lines([] if topic is not None else [*plan_lines(made), *goals_known(), ""])
        out.lines(move_lines(made, shown))
        out.lines(_more(moves) if len(shown) < len(moves) else [])
    if as_json:
        sentences = Sentences(made)
        described = [msgspec.to_builtins(one) | {"sentences": [sentences.of(why) for why in one.why]} for one in moves]
        out.result({"plan_id": made.plan_id, "goals": msgspec.to_builtins(made.goals), "notes": made.notes, "moves": described})
    return DONE


@plan.command(
    "waves",
    short_help="Split a plan into waves with limits on their moves.",
    epilog="""\b
Examples:
  kraftlab pipeline plan waves plan.json --throttle 50MB
  kraftlab pipeline plan waves plan.json --per-broker 5 --cluster 200 --output plan.json

\b
Exit code 1: a wave would overfill a broker's disks before old replicas are gone.""",
)
@click.argument("file", metavar="FILE")
@click.option("--per-broker", type=click.IntRange(1), default=10, show_default=True, help="Maximum moves per broker in one wave.")
@click.option(
    "--per-broker-intra",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Maximum log directory moves per broker in one wave.",
)
@click.option(
    "--cluster", type=click.IntRange(1), default=1250, show_default=True, help="Maximum moves in the cluster in one wave."
)
@click.option("--leaders", type=click.IntRange(1), default=1000, show_default=True, help="Maximum leader changes in one wave.")
@click.option(
    "--throttle", type=_Size(), metavar="SIZE", help="Bytes per second per broker, for example 50MB: estimate each wave's time."
)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the plan with these waves to FILE.")
@json_option
def waves(
    file: str,
    per_broker: int,
    per_broker_intra: int,
    cluster: int,
    leaders: int,
    throttle: int | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Split a plan into waves, to be executed one after the other."""
    from ..planning.explain import duration, wave_lines
    from ..planning.plan import encode_plan
    from ..planning.waves import Caps, summaries, with_waves

    if throttle == 0:
        raise WrongUse("--throttle 0 would stop all moves; give e.g. 50MB, or leave it out")
    made = with_waves(_plan_of(file), Caps(per_broker, per_broker_intra, cluster, leaders))
    if output is not None:
        output.write_bytes(encode_plan(made) + b"\n")
        _note(f"written to {output}")
    found = summaries(made, throttle)
    out = Output(as_json)
    out.lines(wave_lines(found) if found else ["nothing moves"])
    total = sum(wave.seconds or 0.0 for wave in found) if throttle else None
    out.lines([f"together {duration(total)}"] if total is not None else [])
    full = [wave for wave in found if wave.overfull]
    out.lines(
        f"wave {wave.wave} overfills broker {', '.join(map(str, wave.overfull))} before old replicas go: use smaller caps"
        for wave in full
    )
    out.result({"plan_id": made.plan_id, "seconds": total, "waves": msgspec.to_builtins(found)})
    return FAILED if full else DONE


@plan.command(
    "export",
    short_help="Print a plan as a file for `reassign-partitions --execute`.",
    epilog="""\b
Examples:
  kraftlab pipeline plan export plan.json > reassignment.json
  kraftlab pipeline plan export plan.json --wave 2 | tee wave2.json""",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--format", "kind", type=click.Choice(["kafka-json"]), default="kafka-json", show_default=True, help="Output format."
)
@click.option("--wave", type=click.IntRange(1), metavar="N", help="Export only this wave.")
def export(file: str, kind: str, wave: int | None) -> int:
    """Print a plan in the format of Kafka's reassignment tool, log directories included."""
    from kraftlab.cli.reassign.plan import Placement, format_plan

    made = _plan_of(file)
    if wave is not None and wave > made.waves:
        raise WrongUse(f"{file} has {made.waves} waves, there is no wave {wave}")
    moves = [move for move in made.moves if wave in (None, move.wave)]
    if not moves:
        raise WrongUse(f"{file} moves nothing; there is nothing to export")
    click.echo(format_plan(Placement(move.topic, move.partition, move.after, move.dirs) for move in moves))
    return DONE


@plan.command(
    "sweep",
    short_help="Plan for what-ifs: another band, a lost rack, more brokers.",
    epilog="""\b
Example:
  kraftlab pipeline plan sweep --input cluster.json""",
)
@source_options
@click.option("--goals", metavar="GOALS", help="Goals, as for `plan propose` (default: all).")
@json_option
def sweep(input_file: str | None, lake: str | None, goals: str | None, as_json: bool) -> int:
    """Make a plan for each scenario: bands of 5, 10 and 20 %, each rack lost, one and three more brokers."""
    from ..planning.explain import summary_lines
    from ..planning.goals import ALL, parse_goals
    from ..planning.options import PlanOptions
    from ..planning.scenarios import standard_scenarios, summarise

    document = read_cluster_from(input_file, lake)
    options = PlanOptions(goals=ALL if goals is None else parse_goals(goals.split(",")))
    scenarios = standard_scenarios(document, options)
    found = []
    for number, scenario in enumerate(scenarios, 1):
        _note(f"{number} of {len(scenarios)}: {scenario.name}")
        found.append(summarise(document, scenario))
    out = Output(as_json)
    out.lines(summary_lines(found))
    out.result({"scenarios": msgspec.to_builtins(found)})
    return DONE


@plan.command(
    "cluster",
    short_help="Print a cluster as input for `plan propose --input`.",
    epilog="""\b
Example:
  kraftlab pipeline plan cluster > cluster.json""",
)
@source_options
def cluster(input_file: str | None, lake: str | None) -> int:
    """Print a cluster as JSON, the input of plans: to inspect it, keep it, or edit it for a what-if."""
    from ..planning.documents import encode_cluster

    click.echo(encode_cluster(read_cluster_from(input_file, lake)).decode())
    return DONE


# -- shared parts of the commands ----------------------------------------------------------------------------------------------


def read_cluster_from(input_file: str | None, lake: str | None) -> ClusterDocument:
    """Return the cluster of the one given source. WrongUse."""
    servers = named_servers()
    if sum(source is not None for source in (servers, input_file, lake)) > 1:
        raise WrongUse("give at most one of --bootstrap-server, --input and --lake")
    if input_file is not None:
        from ..planning.documents import read_cluster

        return read_cluster(input_file)
    if lake is not None:
        from ..planning.from_lake import read_lake

        return read_lake(lake, _note)
    from ..planning.live import read_live

    with connect(cluster_to_ask()) as client:
        return read_live(client, _note)


def _plan_of(file: str) -> Plan:
    from ..planning.plan import read_plan

    return read_plan(file)


def _note(text: str) -> None:
    click.echo(text, err=True)


def _options(
    drain: tuple[int, ...],
    replace: tuple[str, ...],
    rf: tuple[str, ...],
    add_brokers: tuple[str, ...],
    drain_dir: tuple[str, ...],
    balance: bool,
    goals: str | None,
    eps: float,
    max_bytes: int | None,
    exclude_broker: tuple[int, ...],
    exclude_topic: tuple[str, ...],
) -> PlanOptions:
    from ..planning.goals import ALL, parse_goals
    from ..planning.options import PlanOptions

    factors = [_pair(text, "=", "--rf TOPIC=N", str, _number) for text in rf]
    if len(dict(factors)) < len(factors):
        raise WrongUse("a topic is named twice in --rf; give one replication factor per topic")
    return PlanOptions(
        goals=ALL if goals is None else parse_goals(goals.split(",")),
        eps=eps,
        max_bytes=max_bytes,
        drain=drain,
        replace=tuple(_pair(text, ":", "--replace OLD:NEW", _number, _number) for text in replace),
        rf=dict(factors),
        add_brokers=tuple(_number(id) for text in add_brokers for id in text.split(",")),
        drain_dirs=tuple(_pair(text, ":", "--drain-dir BROKER:PATH", _number, str) for text in drain_dir),
        exclude_brokers=exclude_broker,
        exclude_topics=exclude_topic,
        balance=balance,
    )


A = TypeVar("A")
B = TypeVar("B")


def _pair(text: str, sign: str, usage: str, left: Callable[[str], A], right: Callable[[str], B]) -> tuple[A, B]:
    first, found, second = text.rpartition(sign) if sign == "=" else text.partition(sign)
    if not found or not first or not second:
        raise WrongUse(f"{text!r}: write {usage}")
    return left(first), right(second)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise WrongUse(f"{text!r} is not a number") from None

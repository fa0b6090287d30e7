"""`kraftlab reassign-partitions`: options as Kafka's tool has them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.common.exit_codes import DONE, FAILED, UNFINISHED

from ..completion.values import complete_brokers, complete_directories, complete_partitions, complete_plans, complete_topics
from ..connection import caller_options, connect, controller_option, server_option
from ..output import CommandFailed, Output, WrongUse, given_options, json_option, linearizable_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient, MoveOptions

    from .plan import Plan

_HELP = "kraftlab reassign-partitions --help"
KAFKAS_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
ACTIONS = (*KAFKAS_ACTIONS, "move", "rollback", "forget", "progress")
_NEEDED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
    "move": ("broker", "to"),
    "rollback": (),
    "forget": (),
    "progress": ("reassignment-json-file",),
}
_MOVE_OPTIONS = (
    "validate-only",
    "queue",
    "priority",
    "reason",
    "plan-id",
    "throttle",
    "throttle-ends-with-move",
    "throttle-expires",
)
_ALSO_ALLOWED = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
        "if-unchanged",
        *_MOVE_OPTIONS,
    ),
    "verify": ("preserve-throttles", "kafka-exit-code", "linearizable"),
    "cancel": ("preserve-throttles", "timeout", "all", "topic", "force", "validate-only"),
    "list": ("linearizable", "details"),
    "move": ("timeout", "validate-only"),
    "rollback": ("force", "timeout", *_MOVE_OPTIONS),
    "forget": (),
    "progress": ("watch",),
}
_ALWAYS = ("bootstrap-server", "command-config", "json")
_RATE = click.IntRange(min=-1)
"""Bytes per second; -1 for no limit, as in Kafka's tool."""
_CONTROLLER_ACTIONS = ("cancel", "list")


class Options(msgspec.Struct, frozen=True):
    """Values of the command's options, named as on the command line; None, False or empty if an option was not given."""

    move: str | None
    broker: int | None
    to: str | None
    rollback: str | None
    forget: str | None
    reassignment_json_file: str | None
    topics_to_move_json_file: str | None
    broker_list: str | None
    disable_rack_aware: bool
    additional: bool
    throttle: int | None
    replica_alter_log_dirs_throttle: int | None
    timeout: int | None
    preserve_throttles: bool
    disallow_replication_factor_change: bool
    topic: tuple[str, ...]
    force: bool
    validate_only: bool
    if_unchanged: bool
    queue: bool
    priority: int | None
    plan_id: str | None
    reason: str | None
    throttle_ends_with_move: bool
    throttle_expires: int | None
    details: bool
    watch: bool
    kafka_exit_code: bool
    linearizable: bool

    @property
    def timeout_ms(self) -> int:
        return 10_000 if self.timeout is None else self.timeout

    def changes(self, action: str) -> bool:
        """Return True if the action changes the cluster. --verify removes throttles."""
        if action == "verify":
            return not self.preserve_throttles
        return action in ("execute", "cancel", "move", "rollback", "forget") and not self.validate_only

    def plan(self) -> Plan:
        """Return the plan of --reassignment-json-file. PlanError."""
        from .plan import parse_plan, read_file

        path = self.reassignment_json_file or ""
        return parse_plan(read_file(path), path)

    def moves(self) -> MoveOptions:
        """Return the options of the moves that the action starts or ends."""
        from kraftlab.client import MoveOptions

        owns_throttle = self.throttle_ends_with_move or self.throttle_expires is not None or self.rollback is not None
        return MoveOptions(
            validate_only=self.validate_only,
            reason=self.reason or "",
            plan_id=self.plan_id,
            queued=self.queue,
            priority=self.priority or 0,
            throttle=self.throttle if owns_throttle else None,
            throttle_expires_ms=self.throttle_expires,
            force=self.force,
        )


def check_usage(given: Collection[str]) -> str:
    """Return the one action among the names of the options that were given. CommandFailed with Kafka's text."""
    actions = [action for action in ACTIONS if action in given]
    if len(actions) != 1:
        _refuse_as_kafka("Command must include exactly one action: " + ", ".join(f"--{action}" for action in KAFKAS_ACTIONS))
    action = actions[0]
    if "bootstrap-server" in given and "bootstrap-controller" in given:
        _refuse("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if action == "move" and not {*_NEEDED["move"]} <= {*given}:
        _refuse("--move needs --broker ID and --to DIRECTORY")
    for option in _NEEDED[action]:
        if option not in given and not (action == "cancel" and ("all" in given or "topic" in given)):
            _refuse_as_kafka(f'Missing required argument "[{option}]"')
    allowed = {*_NEEDED[action], *_ALSO_ALLOWED[action], *_ALWAYS, action}
    if action in _CONTROLLER_ACTIONS:
        allowed.add("bootstrap-controller")
    for option in given:
        if option not in allowed:
            _refuse(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    if action == "cancel" and sum(option in given for option in ("reassignment-json-file", "all", "topic")) > 1:
        _refuse("Give one of --reassignment-json-file, --topic, --all")
    if "throttle" not in given and ("throttle-ends-with-move" in given or "throttle-expires" in given):
        _refuse("--throttle-ends-with-move and --throttle-expires need --throttle")
    return action


def _refuse(message: str) -> None:
    raise WrongUse(f"{message}\nSee: {_HELP}")


def _refuse_as_kafka(message: str) -> None:
    """Refuse with the text and the exit code of the recorded tool of Kafka."""
    raise CommandFailed(f"{message}\nSee: {_HELP}", exit_code=FAILED)


@click.command(
    "reassign-partitions",
    epilog="""\b
Examples:
  kraftlab reassign-partitions --generate \\
      --topics-to-move-json-file topics.json --broker-list 0,1,2,3
  kraftlab reassign-partitions --execute \\
      --reassignment-json-file plan.json --throttle 1000000
  kraftlab reassign-partitions --verify --reassignment-json-file plan.json
  kraftlab reassign-partitions --execute --reassignment-json-file plan.json \\
      --queue --throttle 1000000 --throttle-ends-with-move --plan-id friday
  kraftlab reassign-partitions --move orders-0 --broker 0 --to d1
  kraftlab reassign-partitions --list --details
  kraftlab reassign-partitions --rollback friday
  kraftlab reassign-partitions --cancel --all

\b
Exit codes of --verify and --progress: 0 done, 1 not as planned, 2 still in progress.""",
)
@server_option(expose_value=True)
@controller_option(expose_value=True)
@click.option("--generate", is_flag=True, help="Propose a placement of topics on brokers, without changing anything.")
@click.option("--execute", is_flag=True, help="Start the reassignment in a file.")
@click.option(
    "--verify", is_flag=True, help="Check whether the reassignment in a file is complete; remove throttles once none is running."
)
@click.option("--cancel", is_flag=True, help="Cancel running reassignments: those in a file, of topics (--topic), or --all.")
@click.option("--list", "list_", is_flag=True, help="List running reassignments.")
@click.option(
    "--move",
    metavar="PARTITION",
    shell_complete=complete_partitions,
    help="Move a partition's replica, for example of orders-0, to another log directory of its broker, without a file.",
)
@click.option(
    "--broker",
    type=click.IntRange(min=0),
    metavar="ID",
    shell_complete=complete_brokers,
    help="With --move: the replica's broker.",
)
@click.option(
    "--to",
    metavar="DIRECTORY",
    shell_complete=complete_directories,
    help="With --move: the log directory, by its path or the last part of it, for example d1. The present one ends a move.",
)
@click.option(
    "--rollback",
    metavar="PLAN",
    shell_complete=complete_plans,
    help="Restore the replicas from before a plan that was executed with --plan-id PLAN.",
)
@click.option(
    "--forget", metavar="PLAN", shell_complete=complete_plans, help="Delete a saved plan; it can then no longer be rolled back."
)
@click.option("--progress", is_flag=True, help="Show the progress, rate and ETA of each replica in a file (KIP-179).")
@click.option(
    "--reassignment-json-file",
    metavar="FILE",
    help='The plan: {"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}, or the output of --generate --json.',
)
@click.option("--topics-to-move-json-file", metavar="FILE", help='With --generate: {"version":1,"topics":[{"topic":"foo"}]}.')
@click.option("--broker-list", metavar="IDS", help="With --generate: brokers to place replicas on, for example 0,1,2.")
@click.option("--disable-rack-aware", is_flag=True, help="With --generate: ignore racks.")
@click.option(
    "--additional",
    is_flag=True,
    help="With --execute: start even if other reassignments are running; also changes their throttle.",
)
@click.option(
    "--throttle",
    type=_RATE,
    metavar="B/s",
    help="Limit on copying between brokers, in bytes per second (default -1: set no limit).",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=_RATE,
    metavar="B/s",
    help="Limit on copying between log directories, in bytes per second (default -1: set no limit).",
)
@click.option(
    "--timeout", type=click.IntRange(min=0), metavar="MS", help="Time for log directory moves to start (default: 10000)."
)
@click.option("--preserve-throttles", is_flag=True, help="With --verify or --cancel: do not remove throttles.")
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="With --execute: refuse changes of the replication factor (KIP-860).",
)
@click.option("--all", "all_", is_flag=True, help="With --cancel: cancel every reassignment, including queued ones.")
@click.option(
    "--topic",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topics,
    help="With --cancel: cancel the reassignments of a topic; repeatable.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --cancel: even if a partition loses its leader. With --rollback: also partitions that have moved again since.",
)
@click.option(
    "--validate-only",
    is_flag=True,
    help="With --execute, --move, --cancel or --rollback: show the changes without making them.",
)
@click.option("--if-unchanged", is_flag=True, help="With --execute: refuse partitions that changed after this command read them.")
@click.option("--queue", is_flag=True, help="Queue moves until slots are free (reassignment.max.moves.per.broker, .per.cluster).")
@click.option("--priority", type=int, metavar="N", help="With --queue: priority of the moves; higher starts first (default: 0).")
@click.option("--plan-id", metavar="PLAN", help="Save the current replicas under this name, for --rollback.")
@click.option("--reason", metavar="TEXT", help="Reason for the moves, shown by --list --details.")
@click.option(
    "--throttle-ends-with-move",
    is_flag=True,
    help="Apply --throttle to these moves only, until they end; no configs are changed.",
)
@click.option(
    "--throttle-expires",
    type=click.IntRange(min=1),
    metavar="MS",
    help="Like --throttle-ends-with-move, but remove the throttle at the latest this long after a move's start.",
)
@click.option("--details", is_flag=True, help="With --list: add progress, blockers, the queue, plans, and log directory moves.")
@click.option("--watch", is_flag=True, help="With --progress: refresh until every replica has caught up and no move is left.")
@click.option("--kafka-exit-code", is_flag=True, help="With --verify: exit 0 whatever the state, as Kafka's tool does.")
@caller_options
@linearizable_option
@json_option
def reassign_partitions(as_json: bool, **values: object) -> int:
    """Reassign partitions: generate, execute, verify, cancel, list, move, roll back or show progress. Give exactly one action."""
    action = check_usage(given_options(values))
    options = msgspec.convert(values, Options)

    from .directories import ReassignmentFailed
    from .plan import PlanError

    try:
        with connect(changes=options.changes(action), linearizable=options.linearizable) as client:
            return _RUN[action](client, Output(as_json), options)
    except PlanError as error:
        raise CommandFailed(f"Error: {error}", on_stdout=True) from None
    except ReassignmentFailed as error:
        raise CommandFailed(str(error), on_stdout=True) from None


def _generate(client: AdminClient, out: Output, options: Options) -> int:
    from .actions import generate
    from .plan import format_plan, parse_brokers, parse_topics, read_file
    from .text import generate_lines

    path = options.topics_to_move_json_file or ""
    names = parse_topics(read_file(path), path)
    brokers = parse_brokers(options.broker_list or "")
    current, proposed = generate(client, names, brokers, not options.disable_rack_aware)
    out.lines(generate_lines(format_plan(current), format_plan(proposed)))
    out.result({"current": _raw(format_plan(current)), "proposed": _raw(format_plan(proposed))})
    return DONE


def _execute(client: AdminClient, out: Output, options: Options) -> int:
    from .actions import Execution
    from .plan import format_plan
    from .text import name

    plan = options.plan()
    log_dir_rate = options.replica_alter_log_dirs_throttle
    execution = Execution(
        client,
        plan,
        out.lines,
        rate=-1 if options.throttle is None else options.throttle,
        log_dir_rate=-1 if log_dir_rate is None else log_dir_rate,
        timeout_ms=options.timeout_ms,
        allow_change=not options.disallow_replication_factor_change,
        options=options.moves(),
        expects_current=options.if_unchanged,
    )
    execution.run(options.additional)
    moves = [{"replica": "-".join(map(str, replica)), "log_dir": path} for replica, path in plan.moves().items()]
    out.result(
        {
            "rollback": _raw(format_plan(execution.rollback)),
            "started": [name(key) for key in execution.started],
            "queued": [name(key) for key in execution.queued],
            "validated": [name(key) for key in plan.targets()] if options.validate_only else [],
            "moves": moves,
        }
    )
    return DONE


def _move(client: AdminClient, out: Output, options: Options) -> int:
    from .one_move import Outcome, find_move
    from .plan import PlanError, parse_partition

    assert options.broker is not None, "check_usage refuses a move without a broker"
    try:
        partition = parse_partition(options.move or "")
    except PlanError as error:
        raise WrongUse(f"Error: --move: {error}\nSee: {_HELP}") from None
    move = find_move(client, partition, options.broker, options.to or "")
    outcome = Outcome.VALIDATED if options.validate_only else move.start(client, options.timeout_ms / 1000)
    out.lines(move.lines(outcome))
    out.result(move.document(outcome))
    return DONE


def _rollback(client: AdminClient, out: Output, options: Options) -> int:
    from . import text
    from .moves import roll_back

    plan_id = options.rollback or ""
    done = roll_back(client, plan_id, options.moves(), options.timeout_ms)
    if options.validate_only:
        out.lines(text.preview_lines(done.after, done.moves))
    elif not done.changed and not done.moves:
        out.lines([f"Nothing to roll back: all partitions of plan {plan_id} are as they were before it, or on the way there."])
    else:
        out.lines([text.rolled_back_line(plan_id, done.changed)] if done.changed else [])
        out.lines(text.moved_lines(done.moves))
    out.result(
        {
            "plan": plan_id,
            "partitions": [text.name(key) for key in done.after],
            "moves": [{"replica": "-".join(map(str, replica)), "log_dir": path} for replica, path in done.moves.items()],
        }
    )
    return DONE


def _forget(client: AdminClient, out: Output, options: Options) -> int:
    from kraftlab.common.errors import ApiError

    plan_id = options.forget or ""
    try:
        client.forget_plans([plan_id])
    except ApiError as error:
        raise CommandFailed(f"Error: {error.message or error}", on_stdout=True) from None
    out.lines([f"Plan {plan_id} is forgotten; its moves go on."])
    out.result({"forgotten": plan_id})
    return DONE


def _progress(client: AdminClient, out: Output, options: Options) -> int:
    import time

    from . import text
    from .moves import replica_states, with_rates

    plan = options.plan()
    shown: list[str] = []
    started_s = time.monotonic()
    first = states = replica_states(client, plan)
    while True:
        lines = text.progress_table(states, out.width)
        if lines != shown:
            out.lines(["", *lines] if shown else lines)
            shown = lines
        progress = text.overall(states.values())
        if not options.watch or all(state.progress is not text.Progress.RUNNING for state in states.values()):
            break
        time.sleep(_WATCH_S)
        states = with_rates(replica_states(client, plan), first, time.monotonic() - started_s)
    out.result(
        {
            "state": progress.value,
            "replicas": [
                {
                    "topic": topic,
                    "partition": partition,
                    "broker": broker,
                    "status": state.status,
                    "behind": state.behind,
                    "bytes_behind": state.bytes_behind if state.bytes_behind >= 0 else None,
                    "bytes_per_second": state.bytes_per_second if state.bytes_per_second >= 0 else None,
                    "eta_ms": state.eta_ms if state.eta_ms >= 0 else None,
                    "waits_for": state.why or None,
                }
                for (topic, partition, broker), state in states.items()
            ],
        }
    )
    return {text.Progress.DONE: DONE, text.Progress.RUNNING: UNFINISHED, text.Progress.WRONG: FAILED}[progress]


def _verify(client: AdminClient, out: Output, options: Options) -> int:
    from . import text
    from .actions import Verification, clear_throttles

    plan = options.plan()
    state = Verification(client, plan)
    out.lines(text.verify_lines(state.partitions, state.moves))
    clears = state.may_clear_throttles and not options.preserve_throttles
    if clears:
        clear_throttles(client, plan.topics(), out.lines)
    progress = state.progress()
    out.result(
        {
            "state": progress.value,
            "partitions": [
                {"partition": text.name(key), "state": entry.progress.value, "replicas": entry.current, "target": entry.target}
                for key, entry in state.partitions.items()
            ],
            "moves": [
                {
                    "replica": "-".join(map(str, replica)),
                    "state": move.progress.value,
                    "log_dir": move.current,
                    "future_log_dir": move.future,
                    "target": move.target,
                }
                for replica, move in state.moves.items()
            ],
            "throttles_cleared": clears,
        }
    )
    if options.kafka_exit_code:
        return DONE
    return {text.Progress.DONE: DONE, text.Progress.RUNNING: UNFINISHED, text.Progress.WRONG: FAILED}[progress]


def _cancel(client: AdminClient, out: Output, options: Options) -> int:
    from . import moves_text, text
    from .actions import cancel, clear_throttles, preview_cancel

    plan = None if options.reassignment_json_file is None else options.plan()
    topics = options.topic or None
    if options.validate_only:
        after = preview_cancel(client, plan, topics, options.moves())
        out.lines(text.preview_lines(after) or [text.cancelled_line([])])
        out.result({"would_cancel": [text.name(key) for key in after]})
        return DONE
    done = cancel(client, plan, topics, options.moves())
    out.lines([text.cancelled_line(done.partitions), *text.cancelled_move_lines(done.moves, done.silent)])
    if not options.preserve_throttles:
        if done.others:
            out.lines([text.THROTTLES_KEPT])
        else:
            clear_throttles(client, {key[0] for key in done.partitions} if plan is None else set(plan.topics()), out.lines)
    out.result(
        {
            "cancelled": [text.name(key) for key in done.partitions],
            "cancelled_moves": [{"replica": "-".join(map(str, key)), "log_dir": path} for key, path in done.moves.items()],
            "throttles_cleared": not done.others and not options.preserve_throttles,
            "silent_brokers": moves_text.silent_document(done.silent),
        }
    )
    return FAILED if done.silent else DONE


def _list(client: AdminClient, out: Output, options: Options) -> int:
    from . import moves_text, text
    from .actions import ongoing_of
    from .moves import directory_moves

    listing = client.list_partition_reassignments()
    out.lines(text.list_lines(ongoing_of(listing)))
    between_directories = directory_moves(client) if options.details else moves_text.NO_MOVES
    if options.details:
        out.lines(moves_text.detail_lines(listing, out.width))
        out.lines(moves_text.directory_lines(between_directories.moves, out.width))
    out.result(moves_text.document(listing, between_directories))
    return out.silent_brokers(between_directories.silent)


def _raw(document: str) -> msgspec.Raw:
    return msgspec.Raw(document.encode())


_WATCH_S = 1.0
_RUN = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
    "move": _move,
    "rollback": _rollback,
    "forget": _forget,
    "progress": _progress,
}

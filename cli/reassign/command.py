"""`kraftlab reassign-partitions`: options as Kafka's tool has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..completion.values import complete_plans, complete_topics
from ..credentials import caller_options, connect
from ..output import DONE, FAILED, IN_PROGRESS, CommandFailed, Output, json_option, linearizable_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

KAFKAS_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
ACTIONS = (*KAFKAS_ACTIONS, "rollback", "progress")
_NEEDED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
    "rollback": (),
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
    "rollback": ("force", "timeout", *_MOVE_OPTIONS),
    "progress": ("watch",),
}
_ALWAYS = ("bootstrap-server", "command-config", "json")
_CONTROLLER_ACTIONS = ("cancel", "list")


def check_usage(given: dict[str, Any]) -> str:
    """The one action of the options that were given (name → value, those left out missing). CommandFailed with Kafka's text."""
    actions = [action for action in ACTIONS if action in given]
    if len(actions) != 1:
        _refuse("Command must include exactly one action: " + ", ".join(f"--{action}" for action in KAFKAS_ACTIONS))
    action = actions[0]
    if "bootstrap-server" in given and "bootstrap-controller" in given:
        _refuse("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if "bootstrap-server" not in given and "bootstrap-controller" not in given:
        _refuse("Please specify either --bootstrap-server or --bootstrap-controller")
    for option in _NEEDED[action]:
        if option not in given and not (action == "cancel" and ("all" in given or "topic" in given)):
            _refuse(f'Missing required argument "[{option}]"')
    allowed = {*_NEEDED[action], *_ALSO_ALLOWED[action], *_ALWAYS, action}
    if action in _CONTROLLER_ACTIONS:
        allowed.add("bootstrap-controller")
    for option in given:
        if option not in allowed:
            _refuse(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    if action == "cancel" and sum(option in given for option in ("reassignment-json-file", "all", "topic")) > 1:
        _refuse("Cancel what is in a file, in topics, or all: give one of --reassignment-json-file, --topic, --all")
    if "throttle" not in given and ("throttle-ends-with-move" in given or "throttle-expires" in given):
        _refuse("--throttle-ends-with-move and --throttle-expires need --throttle")
    return action


def _refuse(message: str) -> None:
    raise CommandFailed(f"{message}\nSee: kraftlab reassign-partitions --help")


@click.command(
    "reassign-partitions",
    short_help="Move replicas between brokers and log directories.",
    epilog="""\b
Examples:
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --generate \\
      --topics-to-move-json-file topics.json --broker-list 0,1,2,3
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --execute \\
      --reassignment-json-file plan.json --throttle 1000000
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --verify --reassignment-json-file plan.json
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --execute --reassignment-json-file plan.json \\
      --queue --throttle 1000000 --throttle-ends-with-move --plan-id friday
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --list --details
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --rollback friday
  kraftlab reassign-partitions --bootstrap-server 127.0.0.1:9092 --cancel --all

\b
Exit codes: 0 done, 1 error (or not as planned), 2 --verify, --progress: still in progress.""",
)
@click.option("--bootstrap-server", metavar="HOST:PORT[,…]", help="gRPC endpoints of any nodes.")
@click.option("--bootstrap-controller", metavar="HOST:PORT[,…]", help="gRPC endpoints of controllers (--cancel, --list).")
@click.option("--generate", is_flag=True, help="Propose a placement of topics on brokers; changes nothing.")
@click.option("--execute", is_flag=True, help="Start the reassignment of a file.")
@click.option("--verify", is_flag=True, help="Show how far it is; when nothing runs any more, remove throttles.")
@click.option("--cancel", is_flag=True, help="Cancel what runs of a file.")
@click.option("--list", "list_", is_flag=True, help="List reassignments that run.")
@click.option(
    "--rollback",
    metavar="PLAN",
    shell_complete=complete_plans,
    help="Go back to what was before a plan that was executed with --plan-id.",
)
@click.option("--progress", is_flag=True, help="Show how far each replica of a file is, rate and ETA (KIP-179).")
@click.option("--reassignment-json-file", metavar="FILE", help='{"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}')
@click.option("--topics-to-move-json-file", metavar="FILE", help='{"version":1,"topics":[{"topic":"foo"}]}')
@click.option("--broker-list", metavar="IDS", help="Brokers to place on, for example 0,1,2.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not look at racks.")
@click.option("--additional", is_flag=True, help="Execute although others run; also changes a throttle.")
@click.option("--throttle", type=int, metavar="B/s", help="Limit of copying between brokers.")
@click.option("--replica-alter-log-dirs-throttle", type=int, metavar="B/s", help="Limit of copying between log directories.")
@click.option("--timeout", type=click.IntRange(min=0), metavar="MS", help="How long log-dir moves may take to begin (10000).")
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="Refuse changes of the replication factor (KIP-860).")
@click.option("--all", "all_", is_flag=True, help="With --cancel: cancel every reassignment, queued ones too.")
@click.option(
    "--topic",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topics,
    help="With --cancel: cancel what moves in a topic; may be repeated.",
)
@click.option("--force", is_flag=True, help="Cancel even if a partition loses its leader; roll back even what moved on since.")
@click.option("--validate-only", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--if-unchanged", is_flag=True, help="Refuse partitions that somebody changes before the request arrives.")
@click.option("--queue", is_flag=True, help="Let moves wait for free slots (reassignment.max.moves.per.broker and .cluster).")
@click.option("--priority", type=int, metavar="N", help="Of queued moves: higher starts first (0).")
@click.option("--plan-id", metavar="PLAN", help="Remember what was before under this name, for --rollback.")
@click.option("--reason", metavar="TEXT", help="Shown by --list --details.")
@click.option("--throttle-ends-with-move", is_flag=True, help="The throttle belongs to these moves; no config is touched.")
@click.option("--throttle-expires", type=click.IntRange(min=1), metavar="MS", help="…and ends so long after a move's start.")
@click.option("--details", is_flag=True, help="With --list: progress, what holds moves up, the queue, plans, log-dir moves.")
@click.option("--watch", is_flag=True, help="With --progress: again and again until all is in sync.")
@click.option("--kafka-exit-code", is_flag=True, help="With --verify: exit code 0 whatever the state, as Kafka's tool.")
@caller_options
@linearizable_option
@json_option
def reassign_partitions(as_json: bool, **options: Any) -> int:
    """Reassign partitions: generate, execute, verify, cancel, list, roll back or show progress."""
    given = {
        key.rstrip("_").replace("_", "-"): value
        for key, value in options.items()
        if not (value is None or value is False or value == ())
    }
    action = check_usage(given)

    from .actions import ReassignmentFailed
    from .plan import PlanError

    out = Output(as_json)
    try:
        servers = given.get("bootstrap-server") or given["bootstrap-controller"]
        prepared = _read_files(action, given)
        with connect(servers, linearizable="linearizable" in given) as client:
            return _RUN[action](client, out, given, prepared)
    except PlanError as error:
        raise CommandFailed(f"Error: {error}", on_stdout=True) from None
    except ReassignmentFailed as error:
        raise CommandFailed(str(error), on_stdout=True) from None


def _read_files(action: str, given: dict[str, Any]) -> Any:
    """What the action's files hold, judged before anything is asked of the cluster."""
    from . import plan

    if action == "generate":
        names = plan.parse_topics(plan.read_file(given["topics-to-move-json-file"]))
        return names, plan.parse_brokers(given["broker-list"])
    if "reassignment-json-file" in given:
        return plan.parse_plan(plan.read_file(given["reassignment-json-file"]))
    return None


def _generate(client: AdminClient, out: Output, given: dict[str, Any], files: Any) -> int:
    from .actions import generate
    from .plan import format_plan
    from .text import generate_lines

    names, brokers = files
    current, proposed = generate(client, names, brokers, "disable-rack-aware" not in given)
    out.lines(generate_lines(format_plan(current), format_plan(proposed)))
    out.result({"current": _raw(format_plan(current)), "proposed": _raw(format_plan(proposed))})
    return DONE


def _execute(client: AdminClient, out: Output, given: dict[str, Any], plan: Any) -> int:
    from .actions import Execution
    from .plan import format_plan
    from .text import name

    execution = Execution(
        client,
        plan,
        out.lines,
        rate=given.get("throttle", -1),
        log_dir_rate=given.get("replica-alter-log-dirs-throttle", -1),
        timeout_ms=given.get("timeout", 10_000),
        allow_change="disallow-replication-factor-change" not in given,
        options=_move_options(given),
        expects_current="if-unchanged" in given,
    )
    execution.run("additional" in given)
    moves = [{"replica": "-".join(map(str, replica)), "log_dir": path} for replica, path in plan.moves().items()]
    out.result(
        {
            "rollback": _raw(format_plan(execution.rollback)),
            "started": [name(key) for key in execution.started],
            "queued": [name(key) for key in execution.queued],
            "validated": [name(key) for key in plan.targets()] if "validate-only" in given else [],
            "moves": moves,
        }
    )
    return DONE


def _move_options(given: dict[str, Any]) -> Any:
    """What is to be said of the moves that are started."""
    from kraftlab.client import MoveOptions

    owns_throttle = "throttle-ends-with-move" in given or "throttle-expires" in given
    return MoveOptions(
        validate_only="validate-only" in given,
        reason=given.get("reason", ""),
        plan_id=given.get("plan-id"),
        queued="queue" in given,
        priority=given.get("priority", 0),
        throttle=given["throttle"] if owns_throttle or ("rollback" in given and "throttle" in given) else None,
        throttle_expires_ms=given.get("throttle-expires"),
        force="force" in given,
    )


def _rollback(client: AdminClient, out: Output, given: dict[str, Any], files: Any) -> int:
    from . import text
    from .moves import roll_back

    done = roll_back(client, given["rollback"], _move_options(given), given.get("timeout", 10_000))
    if "validate-only" in given:
        out.lines(text.preview_lines(done.after))
    else:
        out.lines([text.rolled_back_line(given["rollback"], list(done.after)), *text.moved_lines(done.moves)])
    out.result(
        {
            "plan": given["rollback"],
            "partitions": [text.name(key) for key in done.after],
            "moves": [{"replica": "-".join(map(str, replica)), "log_dir": path} for replica, path in done.moves.items()],
        }
    )
    return DONE


def _progress(client: AdminClient, out: Output, given: dict[str, Any], plan: Any) -> int:
    import time

    from . import text
    from .moves import replica_states

    shown: list[str] = []
    while True:
        states = replica_states(client, plan)
        lines = text.progress_table(states)
        if lines != shown:
            out.lines(["", *lines] if shown else lines)
            shown = lines
        progress = text.overall(states.values())
        if "watch" not in given or progress is not text.Progress.RUNNING:
            break
        time.sleep(_WATCH_S)
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
                    "bytes_per_second": state.bytes_per_second if state.bytes_per_second >= 0 else None,
                    "eta_ms": state.eta_ms if state.eta_ms >= 0 else None,
                    "waits_for": state.why or None,
                }
                for (topic, partition, broker), state in states.items()
            ],
        }
    )
    return {text.Progress.DONE: DONE, text.Progress.RUNNING: IN_PROGRESS, text.Progress.WRONG: FAILED}[progress]


def _verify(client: AdminClient, out: Output, given: dict[str, Any], plan: Any) -> int:
    from . import text
    from .actions import Verification, clear_throttles

    state = Verification(client, plan)
    out.lines(text.verify_lines(state.partitions, state.moves))
    clears = state.may_clear_throttles and "preserve-throttles" not in given
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
    if "kafka-exit-code" in given:
        return DONE
    return {text.Progress.DONE: DONE, text.Progress.RUNNING: IN_PROGRESS, text.Progress.WRONG: FAILED}[progress]


def _cancel(client: AdminClient, out: Output, given: dict[str, Any], plan: Any) -> int:
    from . import text
    from .actions import cancel, clear_throttles

    if "validate-only" in given:
        return _preview_cancel(client, out, given, plan)
    partitions, moves, others = cancel(client, plan, given.get("topic"), _move_options(given))
    out.lines([text.cancelled_line(partitions), *text.cancelled_move_lines(moves)])
    if "preserve-throttles" not in given:
        if others:
            out.lines([text.THROTTLES_KEPT])
        else:
            topics = {key[0] for key in partitions} if plan is None else set(plan.topics())
            clear_throttles(client, topics, out.lines)
    out.result(
        {
            "cancelled": [text.name(key) for key in partitions],
            "cancelled_moves": [{"replica": "-".join(map(str, key)), "log_dir": path} for key, path in moves.items()],
            "throttles_cleared": not others and "preserve-throttles" not in given,
        }
    )
    return DONE


def _preview_cancel(client: AdminClient, out: Output, given: dict[str, Any], plan: Any) -> int:
    from . import text
    from .actions import preview_cancel

    after = preview_cancel(client, plan, given.get("topic"), _move_options(given))
    out.lines(text.preview_lines(after) or [text.cancelled_line([])])
    out.result({"would_cancel": [text.name(key) for key in after]})
    return DONE


def _list(client: AdminClient, out: Output, given: dict[str, Any], files: Any) -> int:
    from . import moves_text, text
    from .actions import ongoing_of
    from .moves import directory_moves

    response = client.list_partition_reassignments()
    running = ongoing_of(response)
    out.lines(text.list_lines(running))
    between_directories = directory_moves(client) if "details" in given else []
    if "details" in given:
        out.lines(moves_text.detail_lines(response))
        out.lines(moves_text.directory_lines(between_directories))
    out.result(moves_text.document(response, between_directories))
    return DONE


def _raw(document: str) -> Any:
    import msgspec

    return msgspec.Raw(document.encode())


_WATCH_S = 1.0
_RUN = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
    "rollback": _rollback,
    "progress": _progress,
}

"""`kraftlab consumer-groups`: list and describe groups, reset and delete their offsets (kafka-consumer-groups)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.common.exit_codes import DONE, FAILED

from ..completion.values import complete_groups, complete_topics
from ..connection import bootstrap_option, caller_options, connect
from ..output import CommandFailed, Output, WrongUse, given_options, json_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient
    from kraftlab.client.groups import ConsumerGroup

TopicPartition = tuple[str, int]
_VIEWS = ("members", "offsets", "state")
_OFFSETS = ("to-offset", "to-earliest", "to-latest", "to-current", "shift-by")
_SPECIFICATIONS = (*_OFFSETS, "to-datetime", "by-duration", "from-file")
_ALLOWED = {
    "list": ("state", "type"),
    "describe": ("group", "all-groups", *_VIEWS, "verbose"),
    "delete": ("group", "all-groups", "topic"),
    "reset-offsets": ("group", "all-groups", "topic", "all-topics", "dry-run", "execute", "export", *_SPECIFICATIONS),
    "delete-offsets": ("group", "topic"),
}
"""Action → the options that go with it."""
_STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
_TYPES = ("Classic", "Consumer")
_FAILED = "Error: Executing consumer group command failed due to "
_INACTIVE = ("Empty", "Dead")
_WARNING = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require either "
    "--dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting this command "
    "and want to keep the current default behavior without prompting."
)


class Options(msgspec.Struct, frozen=True):
    """Values of the command's options, named as on the command line; None, False or empty if an option was not given."""

    group: tuple[str, ...]
    all_groups: bool
    topic: tuple[str, ...]
    state: str | None
    type: str | None
    members: bool
    verbose: bool
    execute: bool
    export: bool
    to_offset: int | None
    to_earliest: bool
    to_latest: bool
    to_current: bool
    shift_by: int | None
    by_duration: str | None
    to_datetime: str | None
    from_file: Path | None


def check_usage(given: Collection[str]) -> str:
    """Return the one action among the names of the options that were given. WrongUse with Kafka's text."""
    actions = [action for action in _ALLOWED if action in given]
    if len(actions) != 1:
        _refuse("Command must include exactly one action: " + ", ".join(f"--{action}" for action in _ALLOWED))
    (action,) = actions
    if action != "list" and not {"group", "all-groups"} & {*given} and action != "delete-offsets":
        _refuse(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if action == "delete-offsets" and not {"group", "topic"} <= {*given}:
        _refuse("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "delete" and "topic" in given:
        _refuse("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "describe" and sum(view in given for view in _VIEWS) > 1:
        _refuse("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if {"dry-run", "execute"} <= {*given}:
        _refuse("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if {"group", "all-groups"} <= {*given}:
        _refuse('Option "[group]" can\'t be used with option "[all-groups]"')
    for option in given:
        if option not in (action, "timeout", *_ALLOWED[action]):
            _refuse(f'Option "[{option}]" can\'t be used with option "[{action}]"')
    if action == "reset-offsets":
        ways = [option for option in _SPECIFICATIONS if option in given]
        if not ways:
            _refuse(f"Option '[reset-offsets]' requires one of the following scenarios: {', '.join(_SPECIFICATIONS)}")
        if len(ways) > 1:
            _refuse(f'Option "[{ways[0]}]" can\'t be used with option "[{ways[1]}]"')
        scopes = {"topic", "all-topics"} & {*given}
        if (len(scopes) != 1 and "from-file" not in given) or len(scopes) > 1:
            _refuse("One of the reset scopes should be defined: --all-topics, --topic.")
    return action


def _refuse(message: str) -> None:
    raise WrongUse(f"{message}\nSee: kraftlab consumer-groups --help")


def _names(text: str | None, label: str, known: Collection[str]) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not {name.lower() for name in names} <= {name.lower() for name in known}:
        _refuse(f"Invalid {label} list '{text}'. Valid {label.rstrip('s')}s are: {', '.join(known)}")
    return names


@click.command(
    "consumer-groups",
    epilog="""\b
Examples:
  kraftlab consumer-groups --list --state
  kraftlab consumer-groups --describe --group billing
  kraftlab consumer-groups --reset-offsets --group billing --topic orders:0,1 --to-earliest --execute
  kraftlab consumer-groups --reset-offsets --all-groups --all-topics --to-current --export > offsets.csv
  kraftlab consumer-groups --delete-offsets --group billing --topic orders""",
)
@bootstrap_option
@click.option("--list", "list_", is_flag=True, help="List groups, one per line.")
@click.option("--describe", is_flag=True, help="Show partitions, committed offsets and lag of groups.")
@click.option("--reset-offsets", is_flag=True, help="Show or commit new offsets for groups without members.")
@click.option("--delete", is_flag=True, help="Delete groups without members, with their offsets.")
@click.option("--delete-offsets", is_flag=True, help="Delete the offsets of one group in topics that it does not read.")
@click.option("--group", multiple=True, metavar="GROUP", shell_complete=complete_groups, help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option(
    "--topic",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=complete_topics,
    help="A topic, or some of its partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="With --reset-offsets: all topics with offsets of the group.")
@click.option(
    *("--state", "state"),
    is_flag=False,
    flag_value="",
    metavar="[STATE,…]",
    help="With --list: show states, or only groups in these. With --describe: show coordinator and state.",
)
@click.option(
    *("--type", "type"),
    is_flag=False,
    flag_value="",
    metavar="[TYPE,…]",
    help="With --list: show types, or only groups of these: classic, consumer.",
)
@click.option("--members", is_flag=True, help="With --describe: show the members.")
@click.option("--offsets", is_flag=True, help="With --describe: show the offsets, as without it.")
@click.option("--verbose", is_flag=True, help="With --describe: show more columns.")
@click.option("--to-earliest", is_flag=True, help="Reset to the first offset of the log.")
@click.option("--to-latest", is_flag=True, help="Reset to the end of the log.")
@click.option("--to-current", is_flag=True, help="Reset to the committed offset, without one to the end of the log.")
@click.option("--to-offset", type=int, metavar="N", help="Reset to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Reset to the committed offset plus N, which may be negative.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to the first record at most this old.")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDTHH:mm:ss.sss",
    help="Reset to the first record at this time (UTC) or later.",
)
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Reset to the offsets of a CSV file: topic,partition,offset of one group, or group,topic,partition,offset.",
)
@click.option("--dry-run", is_flag=True, help="With --reset-offsets: only show the new offsets (default).")
@click.option("--execute", is_flag=True, help="With --reset-offsets: commit the new offsets.")
@click.option("--export", is_flag=True, help="With --reset-offsets: print CSV for --from-file.")
@click.option(
    "--timeout", type=click.IntRange(min=1), default=30_000, show_default=True, metavar="MS", help="Time limit of each call."
)
@caller_options
@json_option
def consumer_groups(as_json: bool, timeout: int, **values: object) -> int:
    """List and describe consumer groups, and reset or delete their offsets, over the brokers' KAFKA listeners."""
    given = given_options(values)
    action = check_usage(given)
    options = msgspec.convert(values, Options)
    if action == "describe" and options.state:
        _refuse("Option [describe] does not take a value for [state]")
    changes = options.execute or action.startswith("delete")
    if action == "reset-offsets" and not {"dry-run", "execute"} & {*given}:
        click.echo(_WARNING, err=True)
    with connect(changes=changes, timeout_ms=timeout) as client, _kafkas_text():
        return _RUN[action](client, Output(as_json), options)


@contextmanager
def _kafkas_text() -> Iterator[None]:
    from kraftlab.common.errors import ApiError

    try:
        yield
    except ApiError as error:
        raise CommandFailed(f"{_FAILED}{error.message or error}", on_stdout=True) from None


def _group_ids(client: AdminClient, options: Options) -> list[str]:
    named = (group.group_id for group in client.list_consumer_groups()) if options.all_groups else options.group
    return list(dict.fromkeys(named))


def _list(client: AdminClient, out: Output, options: Options) -> int:
    from .text import list_lines

    states, types = _names(options.state, "state", _STATES), _names(options.type, "types", _TYPES)
    groups = client.list_consumer_groups(states, types)
    out.lines(list_lines(groups, types=options.type is not None, states=options.state is not None))
    out.result({"groups": [{"group": each.group_id, "type": each.group_type, "state": each.state} for each in groups]})
    return DONE


def _describe(client: AdminClient, out: Output, options: Options) -> int:
    from .text import lags, member_lines, offset_lines, state_lines, state_note

    documents = []
    for group in client.describe_consumer_groups(_group_ids(client, options)).values():
        for line in state_note(group):
            click.echo(line, err=True)
        document: dict[str, object] = {"group": group.group_id, "state": group.state}
        if options.state is not None:
            lines = state_lines(group, verbose=options.verbose)
            document |= {"coordinator": group.coordinator_id, "assignor": group.assignor, "members": len(group.members)}
        elif options.members:
            lines = member_lines(group, verbose=options.verbose)
            document["members"] = group.members
        else:
            committed = client.list_consumer_group_offsets(group.group_id)
            wanted = {*committed, *(key for member in group.members for key in member.assignment)}
            rows = lags(group, committed, client.group_calls().list_offsets(dict.fromkeys(wanted, -1)))
            lines = offset_lines(group.group_id, rows, verbose=options.verbose) if rows else []
            document["partitions"] = rows
        out.lines(["", *lines] if lines else [])
        documents.append(document)
    out.result({"groups": documents})
    return DONE


def _reset(client: AdminClient, out: Output, options: Options) -> int:
    from kraftlab.client import answer_of
    from kraftlab.common.errors import ApiError

    from .resets import csv_lines, read_csv
    from .text import reset_lines

    group_ids = _group_ids(client, options)
    plans = None
    if options.from_file is not None:
        with options.from_file.open(encoding="utf-8", newline="") as lines:
            plans = read_csv(lines, str(options.from_file), options.group)
    resets: dict[str, dict[TopicPartition, int]] = {}
    errors: dict[str, str] = {}
    described = answer_of(lambda: client.describe_consumer_groups(group_ids))
    for group_id in group_ids:
        group: ConsumerGroup | None = described.get(group_id)
        if group is not None and group.state not in _INACTIVE:
            state = f"inactive, but the current state is {group.state}."
            errors[group_id] = f"Assignments can only be reset if the group '{group_id}' is {state}"
        elif plans is not None and group_id not in plans:
            errors[group_id] = f"No reset plan for group {group_id} found"
        else:
            planned = None if plans is None else plans[group_id]
            resets[group_id] = _new_offsets(client, group_id, options, planned)
    for group_id in list(resets) if options.execute else ():
        try:
            client.alter_consumer_group_offsets(group_id, resets[group_id])
        except ApiError as error:
            del resets[group_id]
            errors[group_id] = f"The offsets of the group '{group_id}' were not reset: {error}"
    for text in errors.values():
        click.echo(f"\nError: {text}", err=options.export or out.as_json)
    out.lines(csv_lines(resets, with_group=len(options.group) != 1) if options.export else reset_lines(resets))
    rows = [
        {"group": group, "topic": topic, "partition": number, "new_offset": offset}
        for group, offsets in resets.items()
        for (topic, number), offset in sorted(offsets.items())
    ]
    out.result({"executed": options.execute, "offsets": rows, "errors": errors})
    return FAILED if errors else DONE


def _new_offsets(
    client: AdminClient, group_id: str, options: Options, planned: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, int]:
    """Return the offsets that the specification names for a group, each within the log of its partition. CommandFailed."""
    from kraftlab.client.groups import EARLIEST, LATEST

    from .resets import duration_ms, moment_ms, topic_partitions, within

    committed = {key: each.offset for key, each in client.list_consumer_group_offsets(group_id).items()}
    scope = topic_partitions(options.topic)
    calls = client.group_calls()
    names = scope or {topic for topic, _ in planned or committed}
    leaders = calls.partitions_of(names)
    wanted = _in_scope(scope, leaders) if scope else [*(planned or committed)]
    if planned is not None and scope:
        wanted = [key for key in wanted if key in planned]
    for problem, keys in (
        ("do not exist", [key for key in wanted if key not in leaders]),
        ("have no leader", [key for key in wanted if leaders.get(key, 0) < 0]),
    ):
        if keys:
            listed = ",".join(f"{topic}-{number}" for topic, number in sorted(keys))
            raise CommandFailed(f'{_FAILED}The partitions "{listed}" {problem}', on_stdout=True)
    first, end = (calls.list_offsets(dict.fromkeys(wanted, timestamp)) for timestamp in (EARLIEST, LATEST))
    since = None
    if options.by_duration is not None:
        since = max(int(time.time() * 1000) - duration_ms(options.by_duration), 0)  # negative ones are special
    elif options.to_datetime is not None:
        since = max(moment_ms(options.to_datetime), 0)
    at_time = {} if since is None else calls.list_offsets(dict.fromkeys(wanted, since))

    def target(key: TopicPartition, start: int, end: int) -> int:
        topic, number = key
        if options.to_earliest or options.to_latest:
            return start if options.to_earliest else end
        if since is not None:
            if (found := at_time[key]) is None:
                text = f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known offset."
                click.echo(text, err=True)
            return end if found is None else found
        if planned is not None:
            return planned[key]
        if options.shift_by is not None:
            if key not in committed:
                reason = "since there is no current committed offset"
                raise CommandFailed(f"Error: Cannot shift offset for partition {topic}-{number} {reason}")
            return committed[key] + options.shift_by
        return committed.get(key, end) if options.to_offset is None else options.to_offset

    found = {}
    for key in wanted:
        start, after = first[key], end[key]
        if start is None or after is None:
            raise CommandFailed(f"Error: the leader of {key[0]}-{key[1]} has just changed; repeat the command")
        found[key], warning = within(target(key, start, after), start, after, f"{key[0]}-{key[1]}")
        if warning:
            click.echo(f"WARN {warning}", err=True)
    return found


def _in_scope(scope: Mapping[str, list[int] | None], known: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that `--topic` names, those of whole topics from the cluster. CommandFailed."""
    found: list[TopicPartition] = []
    for topic, numbers in scope.items():
        of_topic = sorted(number for name, number in known if name == topic)
        if not of_topic:
            raise CommandFailed(f"{_FAILED}there is no topic {topic}", on_stdout=True)
        found += [(topic, number) for number in (of_topic if numbers is None else numbers)]
    return found


def _delete(client: AdminClient, out: Output, options: Options) -> int:
    from kraftlab.client import EntriesFailed

    group_ids = _group_ids(client, options)
    failures: Mapping[str, Exception] = {}
    try:
        client.delete_consumer_groups(group_ids)
    except EntriesFailed as error:
        failures = error.failures
    failed = {name: str(failures[f"group {name}"]) for name in group_ids if f"group {name}" in failures}
    deleted = [name for name in group_ids if name not in failed]
    listed = ", ".join(f"'{name}'" for name in deleted)
    if failed:
        out.lines(["", "Error: Deletion of some consumer groups failed:"])
        out.lines(f"* Group '{name}' could not be deleted due to: {text}" for name, text in failed.items())
        out.lines(["", f"These consumer groups were deleted successfully: {listed}"] if deleted else [])
    else:
        out.lines([f"Deletion of requested consumer groups ({listed}) was successful."])
    out.result({"deleted": deleted, "errors": failed})
    return FAILED if failed else DONE


def _delete_offsets(client: AdminClient, out: Output, options: Options) -> int:
    from kraftlab.client import EntriesFailed
    from kraftlab.common.errors import ApiError, ErrorCode

    from .resets import topic_partitions
    from .text import status_lines

    if len(options.group) > 1:
        _refuse("Error: --delete-offsets takes one group")
    (group_id,) = options.group
    scope = topic_partitions(options.topic)
    known = {*client.group_calls().partitions_of(scope), *client.list_consumer_group_offsets(group_id)}
    wanted: dict[TopicPartition, ApiError | None] = {}
    missing = []
    for topic, numbers in scope.items():
        of_topic = sorted(number for name, number in known if name == topic) if numbers is None else numbers
        wanted |= {(topic, number): None for number in of_topic}
        missing += [] if of_topic else [topic]
    outcome = f"Request succeeded for deleting offsets from group {group_id}."
    try:
        client.delete_consumer_group_offsets(group_id, wanted)
    except EntriesFailed as error:
        outcome = "\nError: Encountered some partition-level error, see the follow-up details."
        wanted = {key: error.failures.get(f"partition {key[0]}-{key[1]}") for key in wanted}
    except ApiError as error:
        outcome, wanted = f"\nError: {error.message}", dict.fromkeys(wanted, error)
    statuses: dict[tuple[str, int | None], str] = {
        key: "Successful" if error is None else f"Error: {error}" for key, error in wanted.items()
    }
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    statuses |= {(topic, None): f"Error: {unknown}" for topic in missing}
    out.lines([outcome, *status_lines(statuses)])
    rows = [{"topic": topic, "partition": number, "status": status} for (topic, number), status in statuses.items()]
    out.result({"group": group_id, "partitions": rows})
    return FAILED if any(status != "Successful" for status in statuses.values()) else DONE


_RUN: Mapping[str, Callable[[AdminClient, Output, Options], int]] = {
    "list": _list,
    "describe": _describe,
    "reset-offsets": _reset,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
}

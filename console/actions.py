"""Actions of the pages: the calls that they may make, each with the words and the command that the dialog shows before.

Theory of operation. An action is a row of ACTIONS: a call of the admin API, a sentence about a request, and the `kraftlab`
command that does the same. Its request comes from the page as JSON with the fields of docs/reference/calls.md; other fields are
refused. With `preview`, the cluster checks the request and changes nothing, where the call has `validate_only`; its answer is
shown too. Nothing else that a browser sends reaches the cluster.
"""

from __future__ import annotations

import json
import math
import shlex
import string
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from google.protobuf import json_format

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.entries import EntriesFailed, checked
from kraftlab.common.errors import ApiError
from kraftlab.common.sizes import bytes_text
from kraftlab.rpc.calls import CALLS, LOG_DIRS, NODE, QUORUM
from kraftlab.rpc.methods import METHODS

from .directories import TIMEOUT_MS, Replica, entries, named_directories, restore_directories, start_in
from .rows import BadQuery

PLAN = "plan.json"
REFUSED = ("header", "validate_only", "initiator", "topic_names", "topic_id", "assignments")
"""Fields that no page needs: a preview is asked for by `preview`, topics are named as the words name them, and the cluster
places new partitions.
"""

WordsAndCommand = tuple[list[str], list[Any]]
Moves = list[tuple[str, pb.ReassignablePartition]]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Order of a page: the request, `preview` for the check alone, and the node where the call is one node's business.
    `log_dirs`, of `reassign`: by partition the log directory of each replica, as in a plan; "any" is the broker's choice.
    """

    request: dict[str, object]
    preview: bool = False
    node: int | None = None
    log_dirs: dict[str, tuple[str, ...]] = {}


class Shown(msgspec.Struct, frozen=True):
    """Contents of a dialog. `typed`: a person types this to confirm; "" for a click. `answer`: the cluster's answer, None where
    the cluster was not asked.
    """

    words: list[str]
    command: str
    checked: bool
    typed: str
    answer: dict[str, object] | None = None


class _Action(NamedTuple):
    """`words`, `command` and `typed` are formats of the request `r`, of the `node`, of `when` moves begin, and of the only values
    of the fields in `one`. `words` may be a function that returns the words and the command; a mapping in a command is a file
    that it reads. `options`: options of the command by field. `force`: the words about a field of that name, which is confirmed
    by typing. `refused`: fields that the command lacks.
    """

    api: str
    words: str | Callable[[Any], WordsAndCommand]
    command: str = ""
    options: Mapping[str, str] = {}
    one: str = ""
    typed: str | Callable[[Any], str] = ""
    force: str = ""
    refused: tuple[str, ...] = ()


class _Format(string.Formatter):
    """Formats numbers of things: `{count:replica}` is 1 replica or 3 replicas."""

    def format_field(self, value: Any, spec: str) -> str:
        return _count(value, spec) if spec else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _when(r: Any) -> str:
    """Return when moves begin, and how fast they are."""
    when = " once slots are free" if r.queued else ""
    priority = f", with priority {r.priority}" if r.priority else ""
    if not r.HasField("throttle"):
        return when + priority
    limit = f"at most {bytes_text(r.throttle)}/s into each broker" if r.throttle else "without a throttle of its own"
    return f"{when}{priority}, {limit}"


def _reassign(r: Any) -> WordsAndCommand:
    moves = entries(r)
    kinds = {each.HasField("replicas") for _, each in moves}
    if len(kinds) != 1:
        raise BadQuery("a request moves partitions or cancels moves; send two requests for both")
    return _move(r, moves) if True in kinds else _cancel(moves)


def _cancel(moves: Moves) -> WordsAndCommand:
    """Return words and command of cancels. The file names the present replicas, which the command does not look at."""
    if not all(each.expected_replicas.values for _, each in moves):
        raise BadQuery("a cancel names the present replicas of each partition as `expected_replicas`")
    words = [f"{_name(move)}: the reassignment is cancelled, and the original replicas stay" for move in moves]
    return words, ["reassign-partitions", "--cancel", *_file(moves, "expected_replicas"), "--preserve-throttles"]


def _move(r: Any, moves: Moves) -> WordsAndCommand:
    if r.force:
        raise BadQuery("`force` is for cancels; a move to replicas needs none")
    words, expects = [], False
    for topic, each in moves:
        has_epoch = each.HasField("expected_partition_epoch")
        expects |= has_epoch or each.HasField("expected_replicas")
        still = f", if its partition epoch is still {each.expected_partition_epoch}" if has_epoch else ""
        words.append(f"{_name((topic, each))} moves to replicas {list(each.replicas.values)}{_when(r)}{still}")
    command = ["reassign-partitions", "--execute", *_file(moves, "replicas"), "--additional"]
    if expects:
        command.append("--if-unchanged")
    if r.HasField("allow_replication_factor_change") and not r.allow_replication_factor_change:
        command.append("--disallow-replication-factor-change")
    if r.HasField("throttle"):
        command.append("--throttle-ends-with-move")
    return words, command


def _name(move: tuple[str, pb.ReassignablePartition]) -> str:
    return f"{move[0]}-{move[1].partition_index}"


def _file(moves: Moves, replicas: str) -> list[Any]:
    partitions = [
        {"topic": topic, "partition": each.partition_index, "replicas": [*getattr(each, replicas).values]}
        for topic, each in moves
    ]
    return ["--reassignment-json-file", {"version": 1, "partitions": partitions}]


def _cancel_all(r: Any) -> WordsAndCommand:
    if r.HasField("topics") and not r.topics.names:
        raise BadQuery("`topics` names no topic; leave it out for all reassignments")
    names = ", ".join(r.topics.names) or "the cluster"
    words = f"Every running and queued reassignment of {names} is cancelled; replicas that were being added are removed"
    which = [part for name in r.topics.names for part in ("--topic", name)] or ["--all"]
    return [words], ["reassign-partitions", "--cancel", *which, "--preserve-throttles"]


def _create(r: Any) -> WordsAndCommand:
    (topic,) = r.topics
    count, factor = topic.num_partitions, topic.replication_factor
    partitions = "the default number of partitions" if count < 0 else _count(count, "partition")
    replicas = "the default number of replicas" if factor < 0 else _count(factor, "replica")
    words = f"Topic {topic.name} is created with {partitions}{'' if count == 1 else ', each'} with {replicas}"
    sizes = [part for pair in (("--partitions", count), ("--replication-factor", factor)) if pair[1] >= 0 for part in pair]
    configs = [part for config in topic.configs for part in ("--config", f"{config.name}={config.value}")]
    return [words], ["topics", "--create", "--topic", topic.name, *sizes, *configs]


def _configure(r: Any) -> WordsAndCommand:
    (resource,) = r.resources
    (config,) = resource.configs
    name, is_removed = resource.resource_name, config.config_operation == 1
    if resource.resource_type not in (2, 4) or config.config_operation not in (0, 1):
        raise BadQuery("a config of a topic (2) or a broker (4) is set (0) or removed (1)")
    kind = "topic" if resource.resource_type == 2 else "broker"
    words = f"{f'{kind} {name}' if name else 'all brokers'}: {config.name} {'is removed' if is_removed else f'= {config.value}'}"
    change = ["--delete-config", config.name] if is_removed else ["--add-config", f"{config.name}=[{config.value}]"]
    return [words], ["configs", "--alter", *([f"--{kind}", name] if name else ["--broker-defaults"]), *change]


def _elect(r: Any) -> WordsAndCommand:
    if r.election_type not in (0, 1):
        raise BadQuery(f"election_type is {r.election_type}; 0 elects preferred leaders, 1 unclean ones")
    chosen = [{"topic": each.topic, "partition": at} for each in r.topic_partitions.values for at in each.partitions]
    if r.HasField("topic_partitions") and not chosen:
        raise BadQuery("`topic_partitions` names no partition; leave it out for every partition that needs a leader")
    which = ", ".join(f"{each['topic']}-{each['partition']}" for each in chosen) or "every partition that needs one"
    kind = "An unclean leader is elected for" if r.election_type else "The preferred replica becomes the leader of"
    words = [f"{kind} {which}", *(["Records that only the lost replicas have are lost"] if r.election_type else [])]
    command = ["leader-election", "--election-type", "unclean" if r.election_type else "preferred"]
    if not chosen:
        return words, [*command, "--all-topic-partitions"]
    if len(chosen) == 1:
        return words, [*command, "--topic", chosen[0]["topic"], "--partition", chosen[0]["partition"]]
    return words, [*command, "--path-to-json-file", {"partitions": chosen}]


FORCED = "Also where a partition loses its leader by that (force)"
FORCE = {"force": "--force"}
MOVE = {
    "throttle": "--throttle",
    "throttle_expires_ms": "--throttle-expires",
    "queued": "--queue",
    "priority": "--priority",
    "plan_id": "--plan-id",
    "reason": "--reason",
    **FORCE,
}
ACTIONS: dict[str, _Action] = {
    "reassign": _Action("AlterPartitionReassignments", _reassign, options=MOVE, force=FORCED),
    "cancel-all": _Action("CancelReassignments", _cancel_all, options=FORCE, force=FORCED),
    "roll-back": _Action(
        "RollbackPlan",
        "The partitions of plan {r.rollback_plan_id} get the replicas, order and directories from before the plan{when}",
        "reassign-partitions --rollback {r.rollback_plan_id}",
        MOVE,
        force="Also partitions that moved on since (force)",
    ),
    "forget-plan": _Action(
        "ForgetPlans",
        "Plan {plan_id} is forgotten and can no longer be rolled back; its moves go on",
        "reassign-partitions --forget {plan_id}",
        one="plan_ids",
    ),
    "replication-factor": _Action(
        "AlterReplicationFactors",
        "Every partition of {topic.name} gets {topic.replication_factor:replica}{when}",
        "topics --alter --topic {pattern} --replication-factor {topic.replication_factor}",
        {"queued": "--queue", "throttle": "--throttle", "plan_id": "--plan-id"},
        one="topics",
        refused=("reason", "priority", "throttle_expires_ms"),
    ),
    "create-topic": _Action("CreateTopics", _create, one="topics"),
    "add-partitions": _Action(
        "CreatePartitions",
        "Topic {topic.name} has {topic.count:partition} then; keys may go to other partitions",
        "topics --alter --topic {pattern} --partitions {topic.count}",
        one="topics",
    ),
    "delete-topic": _Action(
        "DeleteTopics",
        "Topic {topic.name} is deleted with all its records, which nothing brings back",
        "topics --delete --topic {pattern}",
        one="topics",
        typed="{topic.name}",
    ),
    "elect": _Action("ElectLeaders", _elect, typed=lambda r: "unclean" if r.election_type else ""),
    "configure": _Action("IncrementalAlterConfigs", _configure, one="resources.configs"),
    "move-directory": _Action(
        "AlterReplicaLogDirs",
        "{topic.name}-{partition} of broker {node} moves to {dir.path}; it serves from where it is meanwhile",
        "reassign-partitions --move {topic.name}-{partition} --broker {node} --to {dir.path}",
        one="dirs.topics.partitions",
    ),
    "online": _Action(
        "OnlineLogDir",
        "Broker {node} opens {r.log_dir} again; repair and mount the disk first",
        "log-dirs --online {r.log_dir} --broker {node}",
    ),
    "unregister": _Action(
        "UnregisterBroker",
        "Broker {r.broker_id} is no longer registered. Its replicas stay assigned to it; a running broker registers again",
        "cluster unregister --id {r.broker_id}",
        {"expected_broker_epoch": "--expected-epoch"},
        typed="broker {r.broker_id}",
    ),
    "transfer-leadership": _Action(
        "TransferLeadership",
        "The leader resigns once controller {r.voter_id} has its whole log; no acknowledged write is lost",
        "metadata-quorum transfer-leadership --to {r.voter_id}",
    ),
    "add-voter": _Action(
        "AddRaftVoter",
        "Controller {r.voter_id} becomes a voter once it has the leader's log",
        "metadata-quorum add-controller --config controller-{r.voter_id}.properties",
    ),
    "remove-voter": _Action(
        "RemoveRaftVoter",
        "Controller {r.voter_id} becomes an observer; a majority of the remaining voters must be up",
        "metadata-quorum remove-controller -i {r.voter_id} -d {r.voter_directory_id}",
        typed="controller {r.voter_id}",
    ),
    "snapshot": _Action(
        "CreateSnapshot", "Node {node} writes a snapshot of the records that it has applied", "snapshot create --node {node}"
    ),
}


def _named(name: str, action: _Action, r: Any, node: int | None) -> dict[str, Any]:
    """Return the values of the action's formats by name: those of `one` without the s of the field. BadQuery."""
    names: dict[str, Any] = {"r": r, "node": node, "when": _when(r) if hasattr(r, "queued") else ""}
    value = r
    for field in filter(None, action.one.split(".")):
        values = getattr(value, field)
        if len(values) != 1:
            raise BadQuery(f"{name} is about one thing in one request: `{field}` has {_count(len(values), 'value')}; send one")
        names[field.removesuffix("s")] = value = values[0]
    if "topic" in names:  # `kraftlab topics` reads a regular expression
        names["pattern"] = names["topic"].name.replace(".", r"\.")
    return names


def _shown(
    action: _Action, order: Order, r: Any, names: Mapping[str, Any], where: tuple[str, ...], directories: Mapping[Replica, str]
) -> Shown:
    """Return the dialog about a request before it is sent; `names` as those of `_named`. BadQuery."""
    given = {field.name: value for field, value in r.ListFields()}
    made = partial(_Format().vformat, args=(), kwargs=names)
    words, parts = action.words(r) if callable(action.words) else ([made(action.words)], [*map(made, action.command.split())])
    if "plan_id" in given:
        words.append(f"Plan {r.plan_id} remembers the placement before, and can be rolled back")
    if "force" in given:
        words.append(action.force)
    words += [f"{topic}-{index} on broker {broker} goes to {path}" for (topic, index, broker), path in directories.items()]
    for field, option in action.options.items():
        if field in given:
            parts += [option] if given[field] is True else [option, given[field]]
    command = shlex.join(["kraftlab", *(PLAN if isinstance(part, dict) else str(part) for part in parts), *where])
    for file in (part for part in parts if isinstance(part, dict)):
        for each in file["partitions"]:
            if found := order.log_dirs.get(f"{each['topic']}-{each['partition']}"):
                each["log_dirs"] = [*found]
        command = f"cat > {PLAN} <<'END'\n{json.dumps(file)}\nEND\n{command}"
    typed = action.typed(r) if callable(action.typed) else made(action.typed)
    return Shown(words, command, "validate_only" in r.DESCRIPTOR.fields_by_name, "force" if "force" in given else typed)


def _check_fields(document: object, descriptor: Any, refused: tuple[str, ...]) -> None:
    """Refuse a request with other fields than those of docs/reference/calls.md, or with a refused one. BadQuery."""
    for each in document if isinstance(document, list) else [document]:
        for name, value in each.items() if isinstance(each, dict) else ():
            field = descriptor.fields_by_name.get(name)
            if field is None or name in refused:
                raise BadQuery(f"a request of the console has no field {name!r} in {descriptor.name}; leave it out")
            if field.message_type is not None:
                _check_fields(value, field.message_type, refused)


def _parsed(name: str, action: _Action, order: Order) -> Any:
    """Return the request of an order. BadQuery."""
    kind: Any = METHODS[action.api].request
    _check_fields(order.request, kind.DESCRIPTOR, (*REFUSED, *action.refused))
    try:
        request = json_format.ParseDict(order.request, kind())
    except json_format.ParseError as error:
        raise BadQuery(f"not a request of {action.api}: {error}; its fields are in docs/reference/calls.md") from None
    if CALLS[action.api].place in (LOG_DIRS, NODE) and order.node is None:
        raise BadQuery(f"{name} is the business of one node; give its id as `node`")
    if order.log_dirs and name != "reassign":
        raise BadQuery(f"{name} takes no `log_dirs`; leave it out")
    for each in getattr(request, "dirs", ()):
        if not each.path.startswith("/"):
            raise BadQuery("`path` is that of a log directory; the present one ends a move")
    return request


def perform(name: str, order: Order, client: AdminClient, where: tuple[str, ...]) -> Shown:
    """Check an action, or do it, and return what the dialog shows. `where` names the cluster in commands. Blocks. BadQuery,
    ApiError, ClusterUnreachable.
    """
    action = ACTIONS.get(name)
    if action is None:
        raise BadQuery(f"there is no action {name!r}; there are {', '.join(ACTIONS)}")
    request = _parsed(name, action, order)
    directories = named_directories(request, order.log_dirs)
    shown = _shown(action, order, request, _named(name, action, request, order.node), where, directories)
    if client.speaks_kafka and name == "reassign":
        shown = msgspec.structs.replace(shown, checked=False)
        for _, each in entries(request):
            each.ClearField("expected_replicas")
            each.ClearField("expected_partition_epoch")
    if order.preview and not shown.checked:
        return shown
    if order.preview:
        request.validate_only = True
    try:
        if directories and not order.preview:
            answer: Any = start_in(directories, request, client)
        else:
            answer = _sent(action.api, request, order.node, client)
    except EntriesFailed as error:
        if not order.preview:
            raise
        refusals = "; ".join(f"{entry}: {why.message or why}" for entry, why in error.failures.items())
        raise ApiError(error.code, refusals) from None
    document = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    document.pop("header", None)
    return msgspec.structs.replace(shown, answer=document)


def _sent(api: str, request: Any, node: int | None, client: AdminClient) -> Any:
    kind: Any = METHODS[api].response
    row = CALLS[api]
    if api == "IncrementalAlterConfigs":
        return client.incremental_alter_configs(request.resources, validate_only=request.validate_only, timeout_ms=TIMEOUT_MS)
    if row.place in (LOG_DIRS, NODE):
        assert node is not None, "it was checked"
        return checked(client.call_at(client.endpoint_of(node), kind, request, timeout_ms=TIMEOUT_MS))
    if row.place is QUORUM:  # such a call ends when a controller has the whole log
        return client.call(kind, request, timeout_ms=3 * TIMEOUT_MS, attempt_timeout_s=math.inf, once=True)
    answer = client.call(kind, request, timeout_ms=TIMEOUT_MS, once=row.once)
    if api == "RollbackPlan" and not request.validate_only:
        restore_directories(answer, client)
    return answer

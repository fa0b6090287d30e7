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
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from google.protobuf import json_format

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
    """`words`, `command` and `typed` are formats of the request `r`, of the `node`, and of the only values of the fields in
    `one`, or functions of the request; a mapping in a command is a file that it reads. `options`: options of the command by
    field. `force`: the words about a field of that name, which is confirmed by typing. `refused`: fields that the command lacks.
    """

    api: str
    words: str | Callable[[Any], Iterable[str]]
    command: str | Callable[[Any], Iterable[object]]
    options: Mapping[str, str] = {}
    one: str = ""
    typed: str | Callable[[Any], str] = ""
    force: str = ""
    refused: tuple[str, ...] = ()


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


def _moves(r: Any) -> Iterator[str]:
    for topic, each in entries(r):
        name = f"{topic}-{each.partition_index}"
        if not each.HasField("replicas"):
            yield f"{name}: the reassignment is cancelled, and the original replicas stay"
        else:
            expects = each.HasField("expected_partition_epoch")
            still = f", if its partition epoch is still {each.expected_partition_epoch}" if expects else ""
            yield f"{name} moves to replicas {list(each.replicas.values)}{_when(r)}{still}"


def _move_command(r: Any) -> list[object]:
    """Return the command. A cancel names the present replicas, which the command does not look at."""
    moves = entries(r)
    if len({each.HasField("replicas") for _, each in moves}) != 1:
        raise BadQuery("a request moves partitions or cancels moves; send two requests for both")
    cancels = not moves[0][1].HasField("replicas")
    if cancels and not all(each.expected_replicas.values for _, each in moves):
        raise BadQuery("a cancel names the present replicas of each partition as `expected_replicas`")
    if r.force and not cancels:
        raise BadQuery("`force` is for cancels; a move to replicas needs none")
    partitions = [
        {
            "topic": topic,
            "partition": each.partition_index,
            "replicas": [*(each.expected_replicas if cancels else each.replicas).values],
        }
        for topic, each in moves
    ]
    file = ("--reassignment-json-file", {"version": 1, "partitions": partitions})
    if cancels:
        return ["reassign-partitions", "--cancel", *file, "--preserve-throttles"]
    expected = ("expected_partition_epoch", "expected_replicas")
    keeps_factor = r.HasField("allow_replication_factor_change") and not r.allow_replication_factor_change
    more = {
        "--additional": True,
        "--if-unchanged": any(each.HasField(name) for _, each in moves for name in expected),
        "--disallow-replication-factor-change": keeps_factor,
        "--throttle-ends-with-move": r.HasField("throttle"),
    }
    return ["reassign-partitions", "--execute", *file, *(option for option, is_given in more.items() if is_given)]


def _cancels(r: Any) -> Iterator[str]:
    if r.HasField("topics") and not r.topics.names:
        raise BadQuery("`topics` names no topic; leave it out for all reassignments")
    names = ", ".join(r.topics.names) or "the cluster"
    yield f"Every running and queued reassignment of {names} is cancelled; replicas that were being added are removed"


def _cancel_command(r: Any) -> list[str]:
    topics = [part for name in r.topics.names for part in ("--topic", name)]
    return ["reassign-partitions", "--cancel", *(topics or ["--all"]), "--preserve-throttles"]


def _new_topic(r: Any) -> Iterator[str]:
    for each in r.topics:
        count, factor = each.num_partitions, each.replication_factor
        partitions = "the default number of partitions" if count < 0 else _count(count, "partition")
        replicas = "the default number of replicas" if factor < 0 else _count(factor, "replica")
        yield f"Topic {each.name} is created with {partitions}{'' if count == 1 else ', each'} with {replicas}"


def _create_command(r: Any) -> list[object]:
    (each,) = r.topics
    sizes = (("--partitions", each.num_partitions), ("--replication-factor", each.replication_factor))
    given = [part for pair in sizes if pair[1] >= 0 for part in pair]
    configs = [part for config in each.configs for part in ("--config", f"{config.name}={config.value}")]
    return ["topics", "--create", "--topic", each.name, *given, *configs]


def _config_words(r: Any) -> Iterator[str]:
    for resource in r.resources:
        for each in resource.configs:
            kind = "topic" if resource.resource_type == 2 else "broker"
            where = f"{kind} {resource.resource_name}" if resource.resource_name else "all brokers"
            yield f"{where}: {each.name} {'is removed' if each.config_operation else f'= {each.value}'}"


def _config_command(r: Any) -> tuple[str, ...]:
    (resource,) = r.resources
    (each,) = resource.configs
    if resource.resource_type not in (2, 4) or each.config_operation not in (0, 1):
        raise BadQuery("a config of a topic (2) or a broker (4) is set (0) or removed (1)")
    entity = ("--topic" if resource.resource_type == 2 else "--broker", resource.resource_name)
    change = ("--delete-config", each.name) if each.config_operation else ("--add-config", f"{each.name}=[{each.value}]")
    return ("configs", "--alter", *(entity if resource.resource_name else ("--broker-defaults",)), *change)


def _elected(r: Any) -> list[tuple[str, int]]:
    return [(each.topic, index) for each in r.topic_partitions.values for index in each.partitions]


def _elections(r: Any) -> Iterator[str]:
    if r.election_type not in (0, 1):
        raise BadQuery(f"election_type is {r.election_type}; 0 elects preferred leaders, 1 unclean ones")
    if r.HasField("topic_partitions") and not _elected(r):
        raise BadQuery("`topic_partitions` names no partition; leave it out for every partition that needs a leader")
    which = ", ".join(f"{topic}-{index}" for topic, index in _elected(r)) or "every partition that needs one"
    kind = "An unclean leader is elected for" if r.election_type else "The preferred replica becomes the leader of"
    yield f"{kind} {which}"
    if r.election_type:
        yield "Records that only the lost replicas have are lost"


def _election_command(r: Any) -> list[object]:
    kind = ["leader-election", "--election-type", "unclean" if r.election_type else "preferred"]
    match _elected(r):
        case []:
            return [*kind, "--all-topic-partitions"]
        case [(topic, index)]:
            return [*kind, "--topic", topic, "--partition", index]
        case several:
            return [*kind, "--path-to-json-file", {"partitions": [{"topic": topic, "partition": at} for topic, at in several]}]


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
    "reassign": _Action("AlterPartitionReassignments", _moves, _move_command, MOVE, force=FORCED),
    "cancel-all": _Action("CancelReassignments", _cancels, _cancel_command, FORCE, force=FORCED),
    "roll-back": _Action(
        "RollbackPlan",
        lambda r: [
            f"The partitions of plan {r.rollback_plan_id} get the replicas, order and directories from before the plan{_when(r)}"
        ],
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
        lambda r: [
            f"Every partition of {each.name} gets {_count(each.replication_factor, 'replica')}{_when(r)}" for each in r.topics
        ],
        "topics --alter --topic {pattern} --replication-factor {topic.replication_factor}",
        {"queued": "--queue", "throttle": "--throttle", "plan_id": "--plan-id"},
        one="topics",
        refused=("reason", "priority", "throttle_expires_ms"),
    ),
    "create-topic": _Action("CreateTopics", _new_topic, _create_command, one="topics"),
    "add-partitions": _Action(
        "CreatePartitions",
        "Topic {topic.name} has {topic.count} partitions then; keys may go to other partitions",
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
    "elect": _Action("ElectLeaders", _elections, _election_command, typed=lambda r: "unclean" if r.election_type else ""),
    "configure": _Action("IncrementalAlterConfigs", _config_words, _config_command, one="resources.configs"),
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
    names: dict[str, Any] = {"r": r, "node": node}
    value = r
    for field in filter(None, action.one.split(".")):
        values = getattr(value, field)
        if len(values) != 1:
            raise BadQuery(f"{name} is about one thing in one request: `{field}` has {_count(len(values), 'value')}")
        names[field.removesuffix("s")] = value = values[0]
    if "topic" in names:  # `kraftlab topics` reads a regular expression
        names["pattern"] = names["topic"].name.replace(".", r"\.")
    return names


def _shown(
    action: _Action, order: Order, r: Any, names: Mapping[str, Any], where: tuple[str, ...], directories: Mapping[Replica, str]
) -> Shown:
    """Return the dialog about a request before it is sent; `names` as those of `_named`. BadQuery."""
    given = {field.name: value for field, value in r.ListFields()}
    words = [action.words.format(**names)] if isinstance(action.words, str) else [*action.words(r)]
    if "plan_id" in given:
        words.append(f"Plan {r.plan_id} remembers the placement before, and can be rolled back")
    if "force" in given:
        words.append(action.force)
    words += [f"{topic}-{index} on broker {broker} goes to {path}" for (topic, index, broker), path in directories.items()]
    parts = [part.format(**names) for part in action.command.split()] if isinstance(action.command, str) else [*action.command(r)]
    for field, option in action.options.items():
        if field in given:
            parts += [option] if given[field] is True else [option, given[field]]
    command = shlex.join(["kraftlab", *(PLAN if isinstance(part, dict) else str(part) for part in parts), *where])
    for file in (part for part in parts if isinstance(part, dict)):
        for each in file["partitions"]:
            if found := order.log_dirs.get(f"{each['topic']}-{each['partition']}"):
                each["log_dirs"] = [*found]
        command = f"cat > {PLAN} <<'END'\n{json.dumps(file)}\nEND\n{command}"
    typed = action.typed.format(**names) if isinstance(action.typed, str) else action.typed(r)
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
        raise BadQuery(f"not a request of {action.api}: {error}") from None
    if CALLS[action.api].place in (LOG_DIRS, NODE) and order.node is None:
        raise BadQuery(f"{name} is the business of one node; give its id as `node`")
    if order.log_dirs and name != "reassign":
        raise BadQuery(f"{name} takes no `log_dirs`")
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

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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from google.protobuf import json_format

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.entries import EntriesFailed, checked
from kraftlab.common.errors import ApiError
from kraftlab.common.sizes import bytes_text

from .directories import TIMEOUT_MS, LogDirs, entries, named_directories, restore_directories, start_in
from .rows import BadQuery

PLAN = "plan.json"
FORCED = "Also where a partition loses its leader by that (force)"
Command = tuple[str, ...]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Order of a page: the request, `preview` for the check alone, and the node where the call is one node's business.
    `log_dirs`, of `reassign`: by partition the log directory of each replica, as in a plan; "any" is the broker's choice.
    """

    request: dict[str, object]
    preview: bool = False
    node: int | None = None
    log_dirs: dict[str, tuple[str, ...]] = {}


class Shown(msgspec.Struct, frozen=True):
    """Contents of a dialog. `answer`: the cluster's answer, None where the cluster was not asked."""

    words: list[str]
    command: str
    checked: bool
    answer: dict[str, object] | None = None


class _Action(NamedTuple):
    """`typed`: a person types this to confirm; "" for a click. `at_node`: the request goes to `Order.node`. `once`: it is not
    sent again after an attempt that may have worked. `file`: text of PLAN, "" where the command reads no file.
    """

    request: type[Any]
    answer: type[Any]
    words: Callable[[Any, int | None], Iterator[str]]
    command: Callable[[Any, int | None], Command]
    typed: Callable[[Any], str] = lambda request: ""
    at_node: bool = False
    once: bool = False
    file: Callable[[Any, LogDirs], str] = lambda request, log_dirs: ""


def _ids(values: Any) -> str:
    return f"[{', '.join(map(str, values))}]"


def _limit(request: Any) -> str:
    if not request.HasField("throttle"):
        return ""
    limit = f"at most {bytes_text(request.throttle)}/s into each broker" if request.throttle else "without a throttle of its own"
    return f", {limit}"


def _moves(request: Any, node: int | None) -> Iterator[str]:
    when = f" once slots are free, with priority {request.priority}" if request.queued else ""
    for topic, each in entries(request):
        name = f"{topic}-{each.partition_index}"
        if not each.HasField("replicas"):
            yield f"{name}: the reassignment is cancelled, and the original replicas stay"
        else:
            expects = each.HasField("expected_partition_epoch")
            still = f", if its partition epoch is still {each.expected_partition_epoch}" if expects else ""
            yield f"{name} moves to replicas {_ids(each.replicas.values)}{when}{_limit(request)}{still}"
    if request.plan_id:
        yield f"Plan {request.plan_id} remembers the placement before, and can be rolled back"
    if request.force:
        yield FORCED


def _plan_file(request: Any, log_dirs: LogDirs) -> str:
    """Return the file of the command. A cancel names the present replicas, which the command does not look at."""
    partitions = [
        {
            "topic": topic,
            "partition": each.partition_index,
            "replicas": [*(each.replicas if each.HasField("replicas") else each.expected_replicas).values],
            **({"log_dirs": [*found]} if (found := log_dirs.get(f"{topic}-{each.partition_index}")) else {}),
        }
        for topic, each in entries(request)
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def _pattern(topic: str) -> str:
    r"""Return a topic's name as the regular expression that `kraftlab topics` reads: `a\.b` for a.b."""
    return topic.replace(".", r"\.")


def _option(name: str, value: object) -> Command:
    """Return an option of a command; nothing for None, False and ""."""
    return () if value is None or value is False or value == "" else (name,) if value is True else (name, str(value))


def _move_options(request: Any) -> Command:
    """Return the options that AlterPartitionReassignments and RollbackPlan share."""
    expires = request.throttle_expires_ms if request.HasField("throttle_expires_ms") else None
    return (
        *_option("--throttle", request.throttle if request.HasField("throttle") else None),
        *_option("--throttle-expires", expires),
        *_option("--queue", request.queued),
        *_option("--priority", request.priority or None),
        *_option("--plan-id", request.plan_id),
        *_option("--reason", request.reason),
        *_option("--force", request.force),
    )


def _move_command(request: Any, node: int | None) -> Command:
    (cancels,) = {not each.HasField("replicas") for _, each in entries(request)}
    if cancels and not all(each.expected_replicas.values for _, each in entries(request)):
        raise BadQuery("a cancel names the present replicas of each partition as `expected_replicas`")
    command = ("reassign-partitions", "--cancel" if cancels else "--execute", "--reassignment-json-file", PLAN)
    if cancels:
        return (*command, "--preserve-throttles", *_option("--force", request.force))
    if request.force:
        raise BadQuery("`force` is for cancels; a move to replicas needs none")
    fields = ("expected_partition_epoch", "expected_replicas")
    expects = any(each.HasField(name) for _, each in entries(request) for name in fields)
    keeps_factor = request.HasField("allow_replication_factor_change") and not request.allow_replication_factor_change
    return (
        *command,
        "--additional",
        *_option("--if-unchanged", expects),
        *_option("--disallow-replication-factor-change", keeps_factor),
        *_option("--throttle-ends-with-move", request.HasField("throttle")),
        *_move_options(request),
    )


def _cancel_words(request: Any, node: int | None) -> Iterator[str]:
    if request.HasField("topics") and not request.topics.names:
        raise BadQuery("`topics` names no topic; leave it out for all reassignments")
    names = f"of {', '.join(request.topics.names)}" if request.HasField("topics") else "of the cluster"
    yield f"Every running and queued reassignment {names} is cancelled; replicas that were being added are removed"
    if request.force:
        yield FORCED


def _cancel_all_command(request: Any, node: int | None) -> Command:
    which = [part for name in request.topics.names for part in ("--topic", name)] if request.HasField("topics") else ["--all"]
    return ("reassign-partitions", "--cancel", *which, "--preserve-throttles", *_option("--force", request.force))


def _roll_back_words(request: Any, node: int | None) -> Iterator[str]:
    when = " once slots are free" if request.queued else ""
    plan = f"The partitions of plan {request.rollback_plan_id}"
    yield f"{plan} get the replicas, order and directories from before the plan{when}{_limit(request)}"
    if request.force:
        yield "Also partitions that moved on since (force)"


def _forget_command(request: Any, node: int | None) -> Command:
    (plan,) = request.plan_ids
    return ("reassign-partitions", "--forget", plan)


def _topic_words(request: Any, node: int | None) -> Iterator[str]:
    for each in request.topics:
        count = "the default number of" if each.num_partitions < 0 else f"{each.num_partitions}"
        factor = "the default number of" if each.replication_factor < 0 else f"{each.replication_factor}"
        yield f"Topic {each.name} is created with {count} partitions, each with {factor} replicas"


def _create_command(request: Any, node: int | None) -> Command:
    each = _one(request.topics)
    if each.assignments:
        raise BadQuery("the cluster places the partitions of a new topic; give no `assignments`")
    sizes = (("--partitions", each.num_partitions), ("--replication-factor", each.replication_factor))
    configs = [part for config in each.configs for part in ("--config", f"{config.name}={config.value}")]
    return (
        "topics",
        "--create",
        "--topic",
        each.name,
        *(part for name, size in sizes if size >= 0 for part in (name, str(size))),
        *configs,
    )


def _factor_command(request: Any, node: int | None) -> Command:
    each = _one(request.topics)
    if request.reason or request.priority or request.HasField("throttle_expires_ms"):
        raise BadQuery("a replication factor is changed without reason, priority and expiry of the throttle")
    return (
        "topics",
        "--alter",
        "--topic",
        _pattern(each.name),
        "--replication-factor",
        str(each.replication_factor),
        *_option("--queue", request.queued),
        *_option("--throttle", request.throttle if request.HasField("throttle") else None),
        *_option("--plan-id", request.plan_id),
    )


def _factor_words(request: Any, node: int | None) -> Iterator[str]:
    when = " once slots are free" if request.queued else ""
    for each in request.topics:
        yield f"Every partition of {each.name} gets {each.replication_factor} replicas{when}{_limit(request)}"
    if request.plan_id:
        yield f"Plan {request.plan_id} remembers the placement before, and can be rolled back"


def _one(values: Any) -> Any:
    """Return the only value. ValueError."""
    (value,) = values
    return value


def _partitions_command(request: Any, node: int | None) -> Command:
    each = _one(request.topics)
    if each.HasField("assignments"):
        raise BadQuery("the cluster places new partitions; give no `assignments`")
    return ("topics", "--alter", "--topic", _pattern(each.name), "--partitions", str(each.count))


def _config_words(request: Any, node: int | None) -> Iterator[str]:
    for resource in request.resources:
        where = f"{ {2: 'topic', 4: 'broker'}.get(resource.resource_type, 'resource') } {resource.resource_name}"
        for each in resource.configs:
            change = f"= {each.value}" if each.config_operation == 0 else "is removed"
            yield f"{where if resource.resource_name else 'all brokers'}: {each.name} {change}"


def _config_command(request: Any, node: int | None) -> Command:
    (resource,) = request.resources
    (each,) = resource.configs
    if resource.resource_type not in (2, 4) or each.config_operation not in (0, 1):
        raise BadQuery("a config of a topic (2) or a broker (4) is set (0) or removed (1)")
    entity = ("--topic", resource.resource_name) if resource.resource_type == 2 else ("--broker", resource.resource_name)
    change = ("--delete-config", each.name) if each.config_operation else ("--add-config", f"{each.name}=[{each.value}]")
    return ("configs", "--alter", *(entity if resource.resource_name else ("--broker-defaults",)), *change)


def _directory_words(request: Any, node: int | None) -> Iterator[str]:
    for each in request.dirs:
        for topic in each.topics:
            for index in topic.partitions:
                yield f"{topic.name}-{index} of broker {node} moves to {each.path}; it serves from where it is meanwhile"


def _directory_command(request: Any, node: int | None) -> Command:
    (each,) = request.dirs
    (topic,) = each.topics
    (index,) = topic.partitions
    if not each.path.startswith("/"):
        raise BadQuery("`path` is that of a log directory; the present one ends a move")
    return ("reassign-partitions", "--move", f"{topic.name}-{index}", "--broker", str(node), "--to", each.path)


def _election_words(request: Any, node: int | None) -> Iterator[str]:
    if request.election_type not in (0, 1):
        raise BadQuery(f"election_type is {request.election_type}; 0 elects preferred leaders, 1 unclean ones")
    named = [f"{each.topic}-{index}" for each in request.topic_partitions.values for index in each.partitions]
    which = ", ".join(named) if request.HasField("topic_partitions") else "every partition that needs one"
    kind = "The preferred replica becomes the leader of" if request.election_type == 0 else "An unclean leader is elected for"
    yield f"{kind} {which}"
    if request.election_type:
        yield "Records that only the lost replicas have are lost"


def _election_command(request: Any, node: int | None) -> Command:
    kind = ("leader-election", "--election-type", "unclean" if request.election_type else "preferred")
    if not request.HasField("topic_partitions"):
        return (*kind, "--all-topic-partitions")
    if _election_file(request, {}):
        return (*kind, "--path-to-json-file", PLAN)
    (each,) = request.topic_partitions.values
    (index,) = each.partitions
    return (*kind, "--topic", each.topic, "--partition", str(index))


def _registered_as(request: Any) -> Command:
    return _option("--expected-epoch", request.expected_broker_epoch if request.HasField("expected_broker_epoch") else None)


def _election_file(request: Any, log_dirs: LogDirs) -> str:
    named = [(each.topic, index) for each in request.topic_partitions.values for index in each.partitions]
    document = {"partitions": [{"topic": topic, "partition": index} for topic, index in named]}
    return json.dumps(document) if len(named) > 1 else ""


def _says(text: str) -> Callable[[Any, int | None], Iterator[str]]:
    """Return the words of an action with a sentence that is a format of the request and the node."""
    return lambda request, node: iter([text.format(r=request, node=node)])


ACTIONS: dict[str, _Action] = {
    "reassign": _Action(
        pb.AlterPartitionReassignmentsRequest,
        pb.AlterPartitionReassignmentsResponse,
        _moves,
        _move_command,
        typed=lambda r: "force" if r.force else "",
        file=_plan_file,
    ),
    "cancel-all": _Action(
        pb.CancelReassignmentsRequest,
        pb.CancelReassignmentsResponse,
        _cancel_words,
        _cancel_all_command,
        typed=lambda r: "force" if r.force else "",
    ),
    "roll-back": _Action(
        pb.RollbackPlanRequest,
        pb.RollbackPlanResponse,
        _roll_back_words,
        lambda r, _: ("reassign-partitions", "--rollback", r.rollback_plan_id, *_move_options(r)),
        typed=lambda r: "force" if r.force else "",
    ),
    "forget-plan": _Action(
        pb.ForgetPlansRequest,
        pb.ForgetPlansResponse,
        lambda r, _: iter([f"Plan {', '.join(r.plan_ids)} is forgotten and can no longer be rolled back; its moves go on"]),
        _forget_command,
    ),
    "replication-factor": _Action(
        pb.AlterReplicationFactorsRequest,
        pb.AlterReplicationFactorsResponse,
        _factor_words,
        _factor_command,
    ),
    "create-topic": _Action(pb.CreateTopicsRequest, pb.CreateTopicsResponse, _topic_words, _create_command),
    "add-partitions": _Action(
        pb.CreatePartitionsRequest,
        pb.CreatePartitionsResponse,
        lambda r, _: (
            f"Topic {each.name} has {each.count} partitions then; keys may go to other partitions" for each in r.topics
        ),
        _partitions_command,
    ),
    "delete-topic": _Action(
        pb.DeleteTopicsRequest,
        pb.DeleteTopicsResponse,
        lambda r, _: (f"Topic {each.name} is deleted with all its records, which nothing brings back" for each in r.topics),
        lambda r, _: ("topics", "--delete", "--topic", _pattern(_one(r.topics).name)),
        typed=lambda r: r.topics[0].name,
    ),
    "elect": _Action(
        pb.ElectLeadersRequest,
        pb.ElectLeadersResponse,
        _election_words,
        _election_command,
        typed=lambda r: "unclean" if r.election_type else "",
        file=_election_file,
    ),
    "configure": _Action(pb.IncrementalAlterConfigsRequest, pb.IncrementalAlterConfigsResponse, _config_words, _config_command),
    "move-directory": _Action(
        pb.AlterReplicaLogDirsRequest, pb.AlterReplicaLogDirsResponse, _directory_words, _directory_command, at_node=True
    ),
    "online": _Action(
        pb.OnlineLogDirRequest,
        pb.OnlineLogDirResponse,
        _says("Broker {node} opens {r.log_dir} again; repair and mount the disk first"),
        lambda r, node: ("log-dirs", "--online", r.log_dir, "--broker", str(node)),
        at_node=True,
    ),
    "unregister": _Action(
        pb.UnregisterBrokerRequest,
        pb.UnregisterBrokerResponse,
        _says("Broker {r.broker_id} is no longer registered. Its replicas stay assigned to it; a running broker registers again"),
        lambda r, _: ("cluster", "unregister", "--id", str(r.broker_id), *_registered_as(r)),
        typed=lambda r: f"broker {r.broker_id}",
        once=True,
    ),
    "transfer-leadership": _Action(
        pb.TransferLeadershipRequest,
        pb.TransferLeadershipResponse,
        _says("The leader resigns once controller {r.voter_id} has its whole log; no acknowledged write is lost"),
        lambda r, _: ("metadata-quorum", "transfer-leadership", "--to", str(r.voter_id)),
        once=True,
    ),
    "add-voter": _Action(
        pb.AddRaftVoterRequest,
        pb.AddRaftVoterResponse,
        _says("Controller {r.voter_id} becomes a voter once it has the leader's log"),
        lambda r, _: ("metadata-quorum", "add-controller", "--config", f"controller-{r.voter_id}.properties"),
        once=True,
    ),
    "remove-voter": _Action(
        pb.RemoveRaftVoterRequest,
        pb.RemoveRaftVoterResponse,
        _says("Controller {r.voter_id} becomes an observer; a majority of the remaining voters must be up"),
        lambda r, _: ("metadata-quorum", "remove-controller", "-i", str(r.voter_id), "-d", r.voter_directory_id),
        typed=lambda r: f"controller {r.voter_id}",
        once=True,
    ),
    "snapshot": _Action(
        pb.CreateSnapshotRequest,
        pb.CreateSnapshotResponse,
        _says("Node {node} writes a snapshot of the records that it has applied"),
        lambda r, node: ("snapshot", "create", "--node", str(node)),
        at_node=True,
    ),
}


REFUSED = ("header", "validate_only", "initiator", "topic_names", "topic_id")
"""Fields that no page needs: a preview is asked for by `preview`, and topics are named as the words name them."""


def _check_fields(document: object, descriptor: Any) -> None:
    """Refuse a request with other fields than those of docs/reference/calls.md, or with one of REFUSED. BadQuery."""
    for each in document if isinstance(document, list) else [document]:
        for name, value in each.items() if isinstance(each, dict) else ():
            field = descriptor.fields_by_name.get(name)
            if field is None or name in REFUSED:
                raise BadQuery(f"a request of the console has no field {name!r} in {descriptor.name}")
            if field.message_type is not None:
                _check_fields(value, field.message_type)


def carry_out(name: str, order: Order, client: AdminClient, where: Command) -> tuple[Shown, str]:
    """Check or execute an action, and return what the dialog shows, and what a person types to confirm. `where` names the
    cluster in commands. Blocks. BadQuery, ApiError, ClusterUnreachable.
    """
    action = ACTIONS.get(name)
    if action is None:
        raise BadQuery(f"there is no action {name!r}; there are {', '.join(ACTIONS)}")
    _check_fields(order.request, action.request.DESCRIPTOR)
    try:
        request = json_format.ParseDict(order.request, action.request())
    except json_format.ParseError as error:
        raise BadQuery(f"not a request of {action.request.__name__}: {error}") from None
    if action.at_node and order.node is None:
        raise BadQuery(f"{name} is the business of one node; give its id as `node`")
    if order.log_dirs and name != "reassign":
        raise BadQuery(f"{name} takes no `log_dirs`")
    try:
        named = named_directories(request, order.log_dirs)
        words, command = [*action.words(request, order.node)], action.command(request, order.node)
    except BadQuery:
        raise
    except ValueError:
        raise BadQuery(f"{name} is about one thing in one request") from None
    words += [f"{topic}-{index} on broker {broker} goes to {path}" for (topic, index, broker), path in named.items()]
    text = "kraftlab " + shlex.join([*command, *where])
    file = action.file(request, order.log_dirs)
    if file:
        text = f"cat > {PLAN} <<'END'\n{file}\nEND\n{text}"
    checks = "validate_only" in action.request.DESCRIPTOR.fields_by_name
    if client.speaks_kafka and isinstance(request, pb.AlterPartitionReassignmentsRequest):
        checks = False
        for _, each in entries(request):
            each.ClearField("expected_replicas")
            each.ClearField("expected_partition_epoch")
    shown = Shown(words, text, checks)
    if order.preview and not checks:
        return shown, action.typed(request)
    if order.preview:
        request.validate_only = True
    try:
        start = named and not order.preview
        answer = start_in(named, request, client) if start else _sent(action, request, order.node, client)
    except EntriesFailed as error:
        if not order.preview:
            raise
        refusals = "; ".join(f"{entry}: {why.message or why}" for entry, why in error.failures.items())
        raise ApiError(error.code, refusals) from None
    document = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    document.pop("header", None)
    return msgspec.structs.replace(shown, answer=document), action.typed(request)


def _sent(action: _Action, request: Any, node: int | None, client: AdminClient) -> Any:
    if isinstance(request, pb.IncrementalAlterConfigsRequest):
        return client.incremental_alter_configs(request.resources, validate_only=request.validate_only, timeout_ms=TIMEOUT_MS)
    if action.at_node:
        assert node is not None, "it was checked"
        return checked(client.call_at(client.endpoint_of(node), action.answer, request, timeout_ms=TIMEOUT_MS))
    if action.once:
        return client.call(action.answer, request, timeout_ms=3 * TIMEOUT_MS, attempt_timeout_s=math.inf, once=True)
    answer = client.call(action.answer, request, timeout_ms=TIMEOUT_MS)
    if isinstance(answer, pb.RollbackPlanResponse) and not request.validate_only:
        restore_directories(answer, client)
    return answer

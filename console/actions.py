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
from kraftlab.client.entries import checked
from kraftlab.common.sizes import bytes_text

from .rows import BadQuery

TIMEOUT_MS = 20_000
PLAN = "plan.json"
Command = tuple[str, ...]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page sends: the request, `preview` for the check alone, and the node where the call is one node's business."""

    request: dict[str, object]
    preview: bool = False
    node: int | None = None


class Shown(msgspec.Struct, frozen=True):
    """What a dialog shows. `answer`: what the cluster said, None where it was not asked."""

    words: list[str]
    command: str
    checked: bool
    answer: dict[str, object] | None = None


class _Action(NamedTuple):
    """`typed`: a person types this to confirm; "" for a click. `at_node`: the request goes to `Order.node`. `file`: text of
    PLAN, "" where the command reads no file.
    """

    request: type[Any]
    answer: type[Any]
    words: Callable[[Any, int | None], Iterator[str]]
    command: Callable[[Any, int | None], Command]
    typed: Callable[[Any], str] = lambda request: ""
    at_node: bool = False
    once: bool = False
    file: Callable[[Any], str] = lambda request: ""


def _ids(values: Any) -> str:
    return f"[{', '.join(map(str, values))}]"


def _moves(request: Any, node: int | None) -> Iterator[str]:
    limit = f", at most {bytes_text(request.throttle)}/s into each broker" if request.throttle else ""
    when = " once slots are free" if request.queued else ""
    for topic in request.topics:
        for each in topic.partitions:
            name = f"{topic.name}-{each.partition_index}"
            if not each.HasField("replicas"):
                yield f"{name}: the reassignment is cancelled, and the original replicas stay"
            else:
                yield f"{name} moves to replicas {_ids(each.replicas.values)}{when}{limit}"


def _plan_file(request: Any) -> str:
    partitions = [
        {
            "topic": topic.name,
            "partition": each.partition_index,
            **({"replicas": [*each.replicas.values]} if each.HasField("replicas") else {}),
        }
        for topic in request.topics
        for each in topic.partitions
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def _move_command(request: Any, node: int | None) -> Command:
    cancels = any(not each.HasField("replicas") for topic in request.topics for each in topic.partitions)
    head = ("reassign-partitions", "--cancel" if cancels else "--execute", "--reassignment-json-file", PLAN)
    throttle = () if not request.HasField("throttle") else ("--throttle", str(request.throttle), "--throttle-ends-with-move")
    options = [*throttle, *(["--queue"] if request.queued else []), *(["--plan-id", request.plan_id] if request.plan_id else [])]
    options += ["--force"] if request.force else []
    return (*head, *options, *(() if cancels else ("--additional",)))


def _cancel_words(request: Any, node: int | None) -> Iterator[str]:
    names = f"of {', '.join(request.topics.names)}" if request.HasField("topics") else "of the cluster"
    yield f"Every running and queued reassignment {names} is cancelled; replicas that were being added are removed"
    if request.force:
        yield "Also where a partition loses its leader by that (force)"


def _topic_words(request: Any, node: int | None) -> Iterator[str]:
    for each in request.topics:
        count = "the default number of" if each.num_partitions < 0 else f"{each.num_partitions}"
        factor = "the default number of" if each.replication_factor < 0 else f"{each.replication_factor}"
        yield f"Topic {each.name} is created with {count} partitions, each with {factor} replicas"


def _create_command(request: Any, node: int | None) -> Command:
    (each,) = request.topics
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
    (each,) = request.topics
    throttle = () if not request.HasField("throttle") else ("--throttle", str(request.throttle))
    return ("topics", "--alter", "--topic", each.name, "--replication-factor", str(each.replication_factor), *throttle)


def _config_words(request: Any, node: int | None) -> Iterator[str]:
    for resource in request.resources:
        where = {2: "topic", 4: "broker"}.get(resource.resource_type, "resource")
        for each in resource.configs:
            change = f"= {each.value}" if each.config_operation == 0 else "is removed"
            yield f"{where} {resource.resource_name}: {each.name} {change}"


def _config_command(request: Any, node: int | None) -> Command:
    (resource,) = request.resources
    (each,) = resource.configs
    entity = "--topic" if resource.resource_type == 2 else "--broker"
    change = ("--delete-config", each.name) if each.config_operation else ("--add-config", f"{each.name}=[{each.value}]")
    return ("configs", "--alter", entity, resource.resource_name, *change)


def _directory_words(request: Any, node: int | None) -> Iterator[str]:
    for each in request.dirs:
        for topic in each.topics:
            for index in topic.partitions:
                yield f"{topic.name}-{index} of broker {node} moves to {each.path}; it serves from where it is meanwhile"


def _directory_command(request: Any, node: int | None) -> Command:
    (each,) = request.dirs
    (topic,) = each.topics
    return ("reassign-partitions", "--move", f"{topic.name}-{topic.partitions[0]}", "--broker", str(node), "--to", each.path)


def _election_words(request: Any, node: int | None) -> Iterator[str]:
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
    if _election_file(request):
        return (*kind, "--path-to-json-file", PLAN)
    (each,) = request.topic_partitions.values
    return (*kind, "--topic", each.topic, "--partition", str(each.partitions[0]))


def _election_file(request: Any) -> str:
    named = [(each.topic, index) for each in request.topic_partitions.values for index in each.partitions]
    document = {"partitions": [{"topic": topic, "partition": index} for topic, index in named]}
    return json.dumps(document) if len(named) > 1 else ""


def _says(text: str) -> Callable[[Any, int | None], Iterator[str]]:
    """Return the words of an action whose sentence is a format of the request and the node."""
    return lambda request, node: iter([text.format(r=request, node=node)])


ACTIONS: dict[str, _Action] = {
    "reassign": _Action(
        pb.AlterPartitionReassignmentsRequest, pb.AlterPartitionReassignmentsResponse, _moves, _move_command, file=_plan_file
    ),
    "cancel-all": _Action(
        pb.CancelReassignmentsRequest,
        pb.CancelReassignmentsResponse,
        _cancel_words,
        lambda r, _: ("reassign-partitions", "--cancel", "--all", *(["--force"] if r.force else [])),
        typed=lambda r: "force" if r.force else "",
    ),
    "roll-back": _Action(
        pb.RollbackPlanRequest,
        pb.RollbackPlanResponse,
        _says("The partitions of plan {r.rollback_plan_id} get the replicas, order and directories from before the plan"),
        lambda r, _: ("reassign-partitions", "--rollback", r.rollback_plan_id, *(["--force"] if r.force else [])),
    ),
    "forget-plan": _Action(
        pb.ForgetPlansRequest,
        pb.ForgetPlansResponse,
        lambda r, _: iter([f"Plan {', '.join(r.plan_ids)} is forgotten and can no longer be rolled back; its moves go on"]),
        lambda r, _: ("reassign-partitions", "--forget", *r.plan_ids),
    ),
    "replication-factor": _Action(
        pb.AlterReplicationFactorsRequest,
        pb.AlterReplicationFactorsResponse,
        lambda r, _: (f"Every partition of {each.name} gets {each.replication_factor} replicas" for each in r.topics),
        _factor_command,
    ),
    "create-topic": _Action(pb.CreateTopicsRequest, pb.CreateTopicsResponse, _topic_words, _create_command),
    "add-partitions": _Action(
        pb.CreatePartitionsRequest,
        pb.CreatePartitionsResponse,
        lambda r, _: (
            f"Topic {each.name} has {each.count} partitions then; keys may go to other partitions" for each in r.topics
        ),
        lambda r, _: ("topics", "--alter", "--topic", r.topics[0].name, "--partitions", str(r.topics[0].count)),
    ),
    "delete-topic": _Action(
        pb.DeleteTopicsRequest,
        pb.DeleteTopicsResponse,
        lambda r, _: (f"Topic {each.name} is deleted with all its records, which nothing brings back" for each in r.topics),
        lambda r, _: ("topics", "--delete", "--topic", r.topics[0].name),
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
        _says("Broker {node} opens {r.log_dir} again; repair and mount the disk before"),
        lambda r, node: ("log-dirs", "--online", r.log_dir, "--broker", str(node)),
        at_node=True,
    ),
    "unregister": _Action(
        pb.UnregisterBrokerRequest,
        pb.UnregisterBrokerResponse,
        _says("Broker {r.broker_id} is no longer registered. Its replicas stay assigned to it; a running broker registers again"),
        lambda r, _: ("cluster", "unregister", "--id", str(r.broker_id), "--expected-epoch", str(r.expected_broker_epoch)),
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


def carry_out(name: str, order: Order, client: AdminClient, where: Command) -> tuple[Shown, str]:
    """Check or carry out an action, and return what the dialog shows, and what a person types to confirm. `where` names the
    cluster in commands. Blocks. BadQuery, ApiError, ClusterUnreachable.
    """
    action = ACTIONS.get(name)
    if action is None:
        raise BadQuery(f"there is no action {name!r}; there are {', '.join(ACTIONS)}")
    if "header" in order.request or "validate_only" in order.request:
        raise BadQuery("a request has neither `header` nor `validate_only`; give `preview`")
    try:
        request = json_format.ParseDict(order.request, action.request())
    except json_format.ParseError as error:
        raise BadQuery(f"not a request of {action.request.__name__}: {error}") from None
    if action.at_node and order.node is None:
        raise BadQuery(f"{name} is the business of one node; give its id as `node`")
    try:
        words, command = [*action.words(request, order.node)], action.command(request, order.node)
    except (ValueError, IndexError):
        raise BadQuery(f"{name} is about one thing in one request") from None
    text = "kraftlab " + shlex.join([*command, *where])
    file = action.file(request)
    if file:
        text = f"cat > {PLAN} <<'END'\n{file}\nEND\n{text}"
    checks = "validate_only" in action.request.DESCRIPTOR.fields_by_name
    shown = Shown(words, text, checks)
    if order.preview and not checks:
        return shown, action.typed(request)
    if order.preview:
        request.validate_only = True
    answer = _sent(action, request, order.node, client)
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
    return client.call(action.answer, request, timeout_ms=TIMEOUT_MS)

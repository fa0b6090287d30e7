"""`AdminClient`: the admin API from a program that has threads and no event loop.

Theory of operation. A call goes to the active controller if it is known, otherwise to the next bootstrap server; any node will
do, since brokers forward. Every answer names the active controller, so the second call goes there directly. NOT_CONTROLLER and
broken connections move a call to the next node, with a short growing pause, until the call's deadline; then
`ClusterUnreachable` names the nodes that were asked, or the voters that are silent (`waiting.py`). All attempts of a write
carry the same id (`rpc/request_ids.py`): at most one of them takes effect, and the answer is of that attempt. Without ids a
write may take effect before its connection breaks, and the answer to the next attempt shows that (TOPIC_ALREADY_EXISTS, for
example). An error of the whole request raises `ApiError`. If a request names several topics, partitions or others, and some of
them are refused, `EntriesFailed` has the error of each (`entries.py`); it is an ApiError too.

Reads return committed state, which may be slightly old. `min_offset` includes the caller's last write, at every node.
`linearizable` includes all acknowledged writes: a majority of the controllers confirms that the answering one still leads.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import grpc
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.endpoints import KAFKA, named_protocol, parse_servers
from kraftlab.config.resources import ResourceType
from kraftlab.rpc.methods import API_OF_RESPONSE, AdminRequest, Response
from kraftlab.rpc.request_ids import RequestIds

from .attempts import Attempts, fault_of, unreachable, was_never_sent
from .channels import Channels, Transport, authentication_error
from .config_parts import ConfigResource, in_parts
from .entries import checked
from .errors import ClusterUnreachable, header_error
from .log_dirs import LogDirCalls, LogDirFilter
from .moves import NO_OPTIONS, MoveOptions
from .names import names_in, number_in, partition_in
from .partitions import (
    DeletedRecords,
    NewPartitions,
    create_partitions_request,
    delete_records,
    describe_whole,
    elect_leaders_request,
)
from .quorum_probe import ROUND_S, lost_quorum
from .results import (
    Cluster,
    LogDir,
    Reassignments,
    Topic,
    cluster_of,
    log_dirs_of,
    reassignments_of,
    topics_of,
)
from .stream import CallStream
from .waiting import Waiting

if TYPE_CHECKING:
    from .kafka_security import KafkaSecurity

logger = logging.getLogger("kraftlab.client")

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.5
"""Growth of the pause: a client finds a new controller within half the time of its election."""
_LONGEST_PAUSE_S = 0.25
_ATTEMPT_TIMEOUT_S = 15.0
_RECONNECT_S = 1.0
"""Time in which a channel may repeat its last failure although the node listens again: it does not connect all the time."""
_SILENT_S = 0.5
"""A call that waits longer for an answer logs that once, to the logger `kraftlab.client`."""
_REFUSED_PATIENCE_S = 3.0
"""Time limit of a call if no address has an admin API: long enough for a restart."""
_MOVED_ON = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})

TopicPartition = tuple[str, int]


class AboutConfigs(AdminRequest, Protocol):
    """A request about the configs of resources."""

    @property
    def resources(self) -> Iterable[ConfigResource]: ...


class AdminClient(LogDirCalls):
    """A client of one cluster. Thread-safe; use as a context manager, or call `close`.

    `bootstrap_servers` is `host:port[,…]` of any nodes' gRPC endpoints. `timeout_ms` limits each call with its retries.
    `linearizable` is the default for describe and list calls. `user` and `password` authenticate the calls, which are from
    ANONYMOUS without them; a node that does not know them raises ApiError SASL_AUTHENTICATION_FAILED. `client_id` is the client's
    name for quotas. `exactly_once`: writes get ids, and a repeated write takes effect once. `on_wait` gets a line, in another
    thread, when a call has waited for 3 s because no majority of the voters answers.

    `kafka://host:port[,…]` names KAFKA listeners, or brokers of Apache Kafka; `kafka` has keys and a user for them. The Kafka
    protocol has no ids of writes and no linearizable reads; UNSUPPORTED_VERSION refuses what a cluster cannot do.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_ms: int = 30_000,
        cluster_id: str = "",
        linearizable: bool = False,
        user: str | None = None,
        password: str | None = None,
        client_id: str = "",
        exactly_once: bool = True,
        kafka: KafkaSecurity | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._bootstrap = parse_servers(bootstrap_servers)
        speaks_kafka = named_protocol(bootstrap_servers) == KAFKA
        self._timeout_ms = timeout_ms
        self._cluster_id = cluster_id
        self._linearizable = linearizable
        self._channels: Transport = (
            _kafka_channels(kafka, user, client_id) if speaks_kafka else Channels(user, password, client_id)
        )
        self._on_wait = on_wait
        self._request_ids = RequestIds(exactly_once and not speaks_kafka)
        self._leader: Endpoint | None = None
        self._newest_offset = 0
        """Newest metadata offset in an answer. Reads of this client are never older, at any node."""
        self._brokers: dict[int, Endpoint] = {}
        self._controllers: dict[int, Endpoint] = {}

    def close(self) -> None:
        self._channels.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def leader(self) -> Endpoint | None:
        """Endpoint of the active controller in the last answer that named it."""
        return self._leader

    @property
    def transport(self) -> Transport:
        """Connections of this client, for other clients of the same cluster."""
        return self._channels

    @property
    def speaks_kafka(self) -> bool:
        """True if the cluster is called over the Kafka protocol."""
        return not isinstance(self._channels, Channels)

    def check(self, request: AdminRequest) -> None:
        """Refuse a request that the cluster's protocol cannot carry, before a program changes anything. ApiError."""
        self._channels.check(request)

    # -- sending -----------------------------------------------------------------------------------------------------

    def call(
        self,
        answer: type[Response],
        request: AdminRequest,
        *,
        timeout_ms: int | None = None,
        attempt_timeout_s: float = _ATTEMPT_TIMEOUT_S,
        once: bool = False,
    ) -> Response:
        """Send a request to a node that can answer it and return the response. ApiError, ClusterUnreachable.

        `answer` is the response's type, which names the method. The next node is asked if a node does not answer within
        `attempt_timeout_s`. With `once`, a request without an id is not repeated after an attempt that may have taken effect:
        ApiError NETWORK_EXCEPTION or OutcomeUnknown.
        """
        with (
            self._request_ids.of(API_OF_RESPONSE[answer], request) as is_named,
            Waiting(API_OF_RESPONSE[answer], self._probe, self._on_wait),
        ):
            return self._call(answer, request, timeout_ms, attempt_timeout_s, once and not is_named, is_named)

    def _probe(self) -> str | None:
        """Ask the voters for a sign of life. Return "1 of 3 voters answers: no majority", None with a leader."""
        if self.speaks_kafka:
            return None
        known = dict(self._controllers)
        return lost_quorum(self._ask_once, (*self._bootstrap, *known.values()))

    def _ask_once(self, endpoint: Endpoint, api: str, request: Message) -> Message:
        return self._channels.unary(endpoint, api)(request, timeout=ROUND_S)

    def _call(
        self,
        answer: type[Response],
        request: AdminRequest,
        timeout_ms: int | None,
        attempt_timeout_s: float,
        once: bool,
        is_named: bool,
    ) -> Response:
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        limited = request.header.HasField("timeout_ms")
        self._fill_header(request, timeout_ms)
        started = time.monotonic()
        deadline = started + timeout_ms / 1000
        attempts = Attempts(API_OF_RESPONSE[answer], once=once)
        pause_s = _FIRST_PAUSE_S
        is_reported = False
        while True:
            asked: set[Endpoint | None] = {None}
            for endpoint in self._candidates():
                asked.add(endpoint)
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                if not limited:
                    # No node may execute the request after this call has given up.
                    request.header.timeout_ms = max(1, int(left_s * 1000))
                try:
                    response = self._attempt(endpoint, answer, request, min(left_s, attempt_timeout_s))
                    self._newest_offset = max(self._newest_offset, response.header.metadata_offset)
                    return response
                except grpc.RpcError as error:
                    attempts.add_no_answer(endpoint, error, had_time=left_s >= attempt_timeout_s)
                except ApiError as error:
                    if error.code not in _MOVED_ON and not (is_named and self._is_early(error, limited, deadline - pause_s)):
                        attempts.end_with(error)
                        raise
                    attempts.add_refusal(endpoint, error)
                    if self._leader not in asked:
                        break
                if self._leader == endpoint:
                    self._leader = None
            if self._leader is not None and not attempts.has_failed_at(self._leader) and time.monotonic() < deadline:
                continue
            if attempts.found_no_host:
                raise ClusterUnreachable(attempts.summary(time.monotonic() - started))
            if attempts.found_no_api:
                deadline = min(deadline, started + _REFUSED_PATIENCE_S)
            if time.monotonic() + pause_s >= deadline:
                raise ClusterUnreachable(attempts.summary(time.monotonic() - started))
            if time.monotonic() - started > _SILENT_S and not is_reported:
                is_reported = True
                logger.info("no answer yet (%s); trying for another %.0f s", attempts.so_far(), deadline - time.monotonic())
            time.sleep(pause_s)
            pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    def _is_early(self, error: ApiError, limited: bool, deadline: float) -> bool:
        """Return whether a node gave up before this client does, for example at its shutdown."""
        return error.code is ErrorCode.REQUEST_TIMED_OUT and not limited and time.monotonic() < deadline

    def call_at(
        self, endpoint: Endpoint, answer: type[Response], request: AdminRequest, *, timeout_ms: int | None = None
    ) -> Response:
        """Send a request to this node only. ApiError, ClusterUnreachable."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        self._fill_header(request, timeout_ms)
        started = time.monotonic()
        while True:
            try:
                return self._attempt(endpoint, answer, request, left_ms(started + timeout_ms / 1000) / 1000)
            except grpc.RpcError as error:
                seconds, fault = time.monotonic() - started, fault_of(error)
                if not was_never_sent(fault) or seconds > min(_RECONNECT_S, timeout_ms / 1000):
                    raise ClusterUnreachable(unreachable(API_OF_RESPONSE[answer], {endpoint: fault}, seconds)) from error
            time.sleep(_FIRST_PAUSE_S)

    def call_broker(
        self, broker_id: int, answer: type[Response], request: AdminRequest, *, timeout_ms: int | None = None
    ) -> Response:
        """Send a request to a broker. ApiError BROKER_NOT_AVAILABLE if the broker is not registered."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        limited = request.header.HasField("timeout_ms")
        for fresh in (False, True):
            if fresh or broker_id not in self._brokers:
                self.describe_cluster(include_fenced_brokers=True, timeout_ms=left_ms(deadline))
            endpoint = self._brokers.get(broker_id)
            if endpoint is None:
                known = ",".join(map(str, sorted(self._brokers))) or "none"
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered; registered brokers: {known}"
                )
            try:
                return self.call_at(endpoint, answer, request, timeout_ms=left_ms(deadline))
            except ClusterUnreachable:
                if fresh or time.monotonic() >= deadline:
                    raise
                if not limited:
                    request.header.ClearField("timeout_ms")  # the next attempt gets the remaining time
        raise AssertionError("the second attempt returns or raises")

    def endpoint_of(self, node_id: int) -> Endpoint:
        """Return the endpoint of a broker or controller. ApiError BROKER_NOT_AVAILABLE if the node is not registered."""
        self.describe_cluster(include_fenced_brokers=True)
        endpoint = self._brokers.get(node_id) or self._controllers.get(node_id)
        if endpoint is None:
            known = ",".join(map(str, sorted({*self._brokers, *self._controllers}))) or "none"
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not registered; registered nodes: {known}")
        return endpoint

    def open_stream(self) -> CallStream:
        """Return a pipelined stream to the active controller. ClusterUnreachable if no node names the controller in time."""
        if not isinstance(self._channels, Channels):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "a stream of calls needs a node's gRPC endpoint; use the calls one by one"
            )
        deadline = time.monotonic() + self._timeout_ms / 1000
        self.describe_cluster()
        while self._leader is None:
            if time.monotonic() > deadline:
                raise ClusterUnreachable(
                    f"no node has named the active controller within {self._timeout_ms / 1000:g} s; "
                    "see `kraftlab metadata-quorum describe --status`"
                )
            time.sleep(_FIRST_PAUSE_S)
            self.describe_cluster(timeout_ms=left_ms(deadline))
        return CallStream(self._channels, self._leader)

    def _attempt(self, endpoint: Endpoint, answer: type[Response], request: AdminRequest, timeout_s: float) -> Response:
        try:
            response = self._channels.unary(endpoint, API_OF_RESPONSE[answer])(request, timeout=timeout_s)
        except grpc.RpcError as error:
            refusal = authentication_error(error)
            if refusal is not None:
                raise refusal from error
            raise
        assert isinstance(response, answer)
        header = response.header
        if header.HasField("leader") and header.leader.port:
            self._leader = Endpoint(header.leader.host, header.leader.port)
        if header.error_code:
            raise header_error(header)
        return response

    def _candidates(self) -> Iterable[Endpoint]:
        return dict.fromkeys((*((self._leader,) if self._leader else ()), *self._bootstrap))

    def _fill_header(self, request: AdminRequest, timeout_ms: int) -> None:
        if not request.header.HasField("timeout_ms"):
            request.header.timeout_ms = timeout_ms
        if self._cluster_id and not request.header.cluster_id:
            request.header.cluster_id = self._cluster_id

    def _reading(self, linearizable: bool | None, min_offset: int = 0) -> pb.RequestHeader:
        """Return the header of a read; None uses the client's default. The read is never older than an earlier answer."""
        is_linearizable = self._linearizable if linearizable is None else linearizable
        read_mode = pb.READ_MODE_LINEARIZABLE if is_linearizable else pb.READ_MODE_COMMITTED
        return pb.RequestHeader(min_offset=max(min_offset, self._newest_offset), read_mode=read_mode)

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Iterable[pb.CreatableTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.CreateTopicsResponse:
        """Create topics. EntriesFailed names the topics that were refused."""
        request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return checked(self.call(pb.CreateTopicsResponse, request, timeout_ms=timeout_ms))

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> pb.DeleteTopicsResponse:
        """Delete topics. EntriesFailed names the topics that were refused."""
        request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=name) for name in names_in(names)])
        return checked(self.call(pb.DeleteTopicsResponse, request, timeout_ms=timeout_ms))

    def describe_topics(
        self,
        names: Iterable[str] | None = None,
        *,
        min_offset: int = 0,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> pb.DescribeTopicPartitionsResponse:
        """Return topics with partitions, reassignments and dynamic configs, by default every topic. The answer is as of one
        metadata offset. A large answer comes in parts with an offset each; the header has the first and oldest. EntriesFailed
        names the topics that do not exist; `answer_of` returns the others.
        """
        request = pb.DescribeTopicPartitionsRequest(header=self._reading(linearizable, min_offset))
        if names is not None:
            request.topics.CopyFrom(pb.TopicNames(names=names_in(names)))
        whole = describe_whole(request, lambda part: self.call(pb.DescribeTopicPartitionsResponse, part, timeout_ms=timeout_ms))
        return checked(whole)

    def create_partitions(
        self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.CreatePartitionsResponse:
        """Add partitions to topics. EntriesFailed names the topics that were refused."""
        request = create_partitions_request(topics, validate_only)
        return checked(self.call(pb.CreatePartitionsResponse, request, timeout_ms=timeout_ms))

    def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int | None = None
    ) -> pb.ElectLeadersResponse:
        """Elect leaders of these partitions, or of all that need one.

        EntriesFailed names the partitions without an election; those that need none have ELECTION_NOT_NEEDED.
        """
        request = elect_leaders_request(election_type, partitions)
        return checked(self.call(pb.ElectLeadersResponse, request, timeout_ms=timeout_ms))

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records below each offset at the leaders; -1 deletes all committed records. EntriesFailed."""
        return delete_records(self, offsets, timeout_ms)

    # -- configs -----------------------------------------------------------------------------------------------------

    def incremental_alter_configs(
        self, resources: Iterable[pb.AlterConfigsResource], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.IncrementalAlterConfigsResponse:
        """Change dynamic configs, each at the node of its resource. EntriesFailed names the resources that were refused."""

        def ask(node: int | None, part: Sequence[pb.AlterConfigsResource]) -> pb.IncrementalAlterConfigsResponse:
            request = pb.IncrementalAlterConfigsRequest(resources=part, validate_only=validate_only)
            return self._call_about_configs(node, pb.IncrementalAlterConfigsResponse, request, timeout_ms)

        return checked(in_parts(list(resources), ask, lambda response: response.responses))

    def describe_configs(
        self, resources: Iterable[pb.DescribeConfigsResource], *, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> pb.DescribeConfigsResponse:
        """Return effective configs with their synonyms, each from the node of its resource. EntriesFailed."""

        def ask(node: int | None, part: Sequence[pb.DescribeConfigsResource]) -> pb.DescribeConfigsResponse:
            header = self._reading(linearizable)
            request = pb.DescribeConfigsRequest(header=header, resources=part, include_synonyms=True)
            return self._call_about_configs(node, pb.DescribeConfigsResponse, request, timeout_ms)

        return checked(in_parts(list(resources), ask, lambda response: response.results))

    def list_config_resources(
        self, resource_types: Iterable[int] = (), *, timeout_ms: int | None = None
    ) -> pb.ListConfigResourcesResponse:
        """Return the resources with configs, of these types or of all."""
        request = pb.ListConfigResourcesRequest(header=self._reading(None), resource_types=resource_types)
        return self.call(pb.ListConfigResourcesResponse, request, timeout_ms=timeout_ms)

    def _call_about_configs(
        self, node: int | None, answer: type[Response], request: AboutConfigs, timeout_ms: int | None
    ) -> Response:
        """Send a request to the node of its configs. The active controller changes and describes the configs of an unreachable
        broker. A controller describes its own configs, and the active controller changes them. Loggers need their own node.
        """
        with self._request_ids.of(API_OF_RESPONSE[answer], request):
            return self._call_node(node, answer, request, timeout_ms)

    def _call_node(self, node: int | None, answer: type[Response], request: AboutConfigs, timeout_ms: int | None) -> Response:
        if node is None:
            return self.call(answer, request, timeout_ms=timeout_ms)
        try:
            response = self.call_broker(node, answer, request, timeout_ms=timeout_ms)
        except (ApiError, ClusterUnreachable) as error:
            is_gone = isinstance(error, ClusterUnreachable) or error.code == ErrorCode.BROKER_NOT_AVAILABLE
            takes_any = all(resource.resource_type == ResourceType.BROKER for resource in request.resources)
            other = self._controllers.get(node, self._leader if takes_any else None)
            if not is_gone or other is None:
                raise
            try:
                response = self.call_at(other, answer, request, timeout_ms=timeout_ms)
            except ApiError as refusal:
                if refusal.code is not ErrorCode.NOT_CONTROLLER or self._leader is None or self._leader == other:
                    raise
                response = self.call_at(self._leader, answer, request, timeout_ms=timeout_ms)
        self._newest_offset = max(self._newest_offset, response.header.metadata_offset)
        return response

    # -- quotas and features ------------------------------------------------------------------------------------------

    def alter_client_quotas(
        self, entries: Iterable[pb.ClientQuotaAlteration], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.AlterClientQuotasResponse:
        request = pb.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        return checked(self.call(pb.AlterClientQuotasResponse, request, timeout_ms=timeout_ms))

    def describe_client_quotas(
        self, components: Iterable[pb.QuotaFilterComponent] = (), *, strict: bool = False, timeout_ms: int | None = None
    ) -> pb.DescribeClientQuotasResponse:
        request = pb.DescribeClientQuotasRequest(header=self._reading(None), components=components, strict=strict)
        return self.call(pb.DescribeClientQuotasResponse, request, timeout_ms=timeout_ms)

    def update_features(
        self, updates: Iterable[pb.FeatureUpdate], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.UpdateFeaturesResponse:
        """Finalize all of the levels or none. ApiError INVALID_UPDATE_VERSION."""
        request = pb.UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
        return checked(self.call(pb.UpdateFeaturesResponse, request, timeout_ms=timeout_ms))

    def api_versions(self, *, timeout_ms: int | None = None) -> pb.ApiVersionsResponse:
        """Return the API versions of a node, and the features of the cluster."""
        request = pb.ApiVersionsRequest(
            header=pb.RequestHeader(min_offset=self._newest_offset),
            client_software_name="kraftlab",
            client_software_version="1",
        )
        return self.call(pb.ApiVersionsResponse, request, timeout_ms=timeout_ms)

    # -- reassignments -----------------------------------------------------------------------------------------------

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        expected: Mapping[TopicPartition, Sequence[int]] | None = None,
        options: MoveOptions = NO_OPTIONS,
        timeout_ms: int | None = None,
    ) -> pb.AlterPartitionReassignmentsResponse:
        """Start reassignments to the given replicas; None cancels a running or queued reassignment.

        Partitions whose current replicas differ from `expected` are refused. EntriesFailed names the refused partitions; the
        others have started.
        """
        topics: dict[str, pb.ReassignableTopic] = {}
        for key, replicas in targets.items():
            name, index = partition_in(key)
            partition = pb.ReassignablePartition(partition_index=index)
            if replicas is not None:
                partition.replicas.CopyFrom(pb.Int32List(values=replicas))
            if expected is not None and (name, index) in expected:
                partition.expected_replicas.CopyFrom(pb.Int32List(values=expected[name, index]))
            topics.setdefault(name, pb.ReassignableTopic(name=name)).partitions.append(partition)
        request = pb.AlterPartitionReassignmentsRequest(
            topics=topics.values(), allow_replication_factor_change=allow_replication_factor_change
        )
        return self._reassign(request, options, timeout_ms)

    def cancel_partition_reassignments(
        self, topics: Iterable[str] | None = None, *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.AlterPartitionReassignmentsResponse:
        """Cancel all running and queued reassignments, in these topics or everywhere, in one call."""
        request = pb.AlterPartitionReassignmentsRequest(cancel_all=topics is None, cancel_topics=names_in(topics or ()))
        return self._reassign(request, options, timeout_ms)

    def rollback_reassignment(
        self, plan_id: str, *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.AlterPartitionReassignmentsResponse:
        """Restore the partitions of a plan as they were before the plan. The answers name replicas that change directories on
        their broker; `alter_replica_log_dirs` moves them.
        """
        return self._reassign(pb.AlterPartitionReassignmentsRequest(rollback_plan_id=plan_id), options, timeout_ms)

    def forget_plans(self, plan_ids: Iterable[str], *, timeout_ms: int | None = None) -> pb.AlterPartitionReassignmentsResponse:
        """Forget all of these plans or none; their reassignments go on. ApiError RESOURCE_NOT_FOUND."""
        return self._reassign(pb.AlterPartitionReassignmentsRequest(forget_plans=names_in(plan_ids)), NO_OPTIONS, timeout_ms)

    def _reassign(
        self, request: pb.AlterPartitionReassignmentsRequest, options: MoveOptions, timeout_ms: int | None
    ) -> pb.AlterPartitionReassignmentsResponse:
        options.fill(request)
        return checked(self.call(pb.AlterPartitionReassignmentsResponse, request, timeout_ms=timeout_ms))

    def alter_replication_factors(
        self, factors: Mapping[str, int], *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.AlterReplicationFactorsResponse:
        """Set the replication factor of topics (KIP-179); with `validate_only` only return the plan."""
        request = pb.AlterReplicationFactorsRequest(
            topics=[
                pb.TopicReplicationFactor(name=name, replication_factor=number_in(name, factor))
                for name, factor in factors.items()
            ]
        )
        options.fill(request)
        return checked(self.call(pb.AlterReplicationFactorsResponse, request, timeout_ms=timeout_ms))

    def alter_partition_counts(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.AlterPartitionCountsResponse:
        """Add partitions to topics up to these counts (KIP-179)."""
        request = pb.AlterPartitionCountsRequest(
            topics=[pb.TopicPartitionCount(name=name, count=number_in(name, count)) for name, count in counts.items()],
            validate_only=validate_only,
        )
        return checked(self.call(pb.AlterPartitionCountsResponse, request, timeout_ms=timeout_ms))

    def alter_inter_broker_throttle(
        self,
        broker_id: int | None,
        *,
        leader_rate: int | None = None,
        follower_rate: int | None = None,
        timeout_ms: int | None = None,
    ) -> pb.AlterInterBrokerThrottleResponse:
        """Set the replication throttles of a broker, or the default of all brokers; a negative rate removes a throttle."""
        request = pb.AlterInterBrokerThrottleRequest(broker_id=broker_id, leader_rate=leader_rate, follower_rate=follower_rate)
        return self.call(pb.AlterInterBrokerThrottleResponse, request, timeout_ms=timeout_ms)

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> pb.ListPartitionReassignmentsResponse:
        """Return the running reassignments, of all partitions or of these.

        Only the active controller knows their progress: an answer without progress is read again from the active controller.
        """
        request = pb.ListPartitionReassignmentsRequest(header=self._reading(linearizable))
        if partitions is not None:
            topics: dict[str, pb.ListReassignmentsTopic] = {}
            for name, index in map(partition_in, partitions):
                topics.setdefault(name, pb.ListReassignmentsTopic(name=name)).partition_indexes.append(index)
            request.topics.CopyFrom(pb.ListReassignmentsTopics(topics=topics.values()))
        response = self.call(pb.ListPartitionReassignmentsResponse, request, timeout_ms=timeout_ms)
        if response.has_progress or self._leader is None or not (response.topics or response.queued):
            return response
        return self.call(pb.ListPartitionReassignmentsResponse, request, timeout_ms=timeout_ms)

    # -- cluster -----------------------------------------------------------------------------------------------------

    def describe_cluster(
        self, *, include_fenced_brokers: bool = False, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> pb.DescribeClusterResponse:
        request = pb.DescribeClusterRequest(header=self._reading(linearizable), include_fenced_brokers=include_fenced_brokers)
        response = self.call(pb.DescribeClusterResponse, request, timeout_ms=timeout_ms)
        brokers = {broker.broker_id: Endpoint(broker.host, broker.port) for broker in response.brokers}
        self._brokers = brokers if include_fenced_brokers else self._brokers | brokers
        self._controllers |= {node.controller_id: Endpoint(node.host, node.port) for node in response.controllers if node.port}
        return response

    def unregister_broker(
        self, broker_id: int, expected_epoch: int | None = None, *, timeout_ms: int | None = None
    ) -> pb.UnregisterBrokerResponse:
        """Unregister a broker, with `expected_epoch` only if it is registered with that epoch. ApiError BROKER_ID_NOT_REGISTERED,
        STALE_BROKER_EPOCH.
        """
        request = pb.UnregisterBrokerRequest(broker_id=broker_id, expected_broker_epoch=expected_epoch)
        return self.call(pb.UnregisterBrokerResponse, request, timeout_ms=timeout_ms, once=True)

    def init_producer_id(self, broker_id: int, *, timeout_ms: int | None = None) -> pb.InitProducerIdResponse:
        """Return a new id for an idempotent producer from a broker."""
        request = pb.InitProducerIdRequest()
        return self.call_broker(broker_id, pb.InitProducerIdResponse, request, timeout_ms=timeout_ms)

    def describe_quorum(self, *, linearizable: bool | None = None, timeout_ms: int | None = None) -> pb.DescribeQuorumResponse:
        request = pb.DescribeQuorumRequest(header=self._reading(linearizable))
        return self.call(pb.DescribeQuorumResponse, request, timeout_ms=timeout_ms)

    def add_raft_voter(
        self, voter_id: int, directory_id: str, listeners: Mapping[str, Endpoint], *, timeout_ms: int | None = None
    ) -> pb.AddRaftVoterResponse:
        """Make a node that follows the metadata log a voter (KIP-853). Return when the change is committed. ApiError."""
        request = pb.AddRaftVoterRequest(
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[pb.QuorumEndpoint(name=name, host=at.host, port=at.port) for name, at in sorted(listeners.items())],
        )
        return self._change_quorum(pb.AddRaftVoterResponse, request, timeout_ms)

    def remove_raft_voter(self, voter_id: int, directory_id: str, *, timeout_ms: int | None = None) -> pb.RemoveRaftVoterResponse:
        """Make a voter an observer (KIP-853). Return when the change is committed. ApiError."""
        request = pb.RemoveRaftVoterRequest(voter_id=voter_id, voter_directory_id=directory_id)
        return self._change_quorum(pb.RemoveRaftVoterResponse, request, timeout_ms)

    def transfer_leadership(
        self, voter_id: int, directory_id: str = "", *, timeout_ms: int | None = None
    ) -> pb.TransferLeadershipResponse:
        """Make the leader of the quorum resign in a voter's favour. The voter is elected after the return. ApiError."""
        request = pb.TransferLeadershipRequest(voter_id=voter_id, voter_directory_id=directory_id)
        return self._change_quorum(pb.TransferLeadershipResponse, request, timeout_ms)

    def _change_quorum(self, answer: type[Response], request: AdminRequest, timeout_ms: int | None) -> Response:
        """Send a change once and wait for its answer: a repeated request would be refused while the change is under way."""
        return self.call(answer, request, timeout_ms=timeout_ms, attempt_timeout_s=math.inf, once=True)

    # -- access ------------------------------------------------------------------------------------------------------

    def create_acls(self, creations: Iterable[pb.AclCreation], *, timeout_ms: int | None = None) -> pb.CreateAclsResponse:
        """Add access rules. EntriesFailed."""
        request = pb.CreateAclsRequest(creations=creations)
        return checked(self.call(pb.CreateAclsResponse, request, timeout_ms=timeout_ms))

    def delete_acls(self, filters: Iterable[pb.DeleteAclsFilter], *, timeout_ms: int | None = None) -> pb.DeleteAclsResponse:
        """Remove the rules that any of the filters matches. The response has the rules of each filter. EntriesFailed."""
        request = pb.DeleteAclsRequest(filters=filters)
        return checked(self.call(pb.DeleteAclsResponse, request, timeout_ms=timeout_ms))

    def describe_acls(
        self,
        wanted: pb.DescribeAclsRequest | None = None,
        *,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> pb.DescribeAclsResponse:
        """Return the access rules that the filter of a request matches, or all."""
        request = pb.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        if wanted is not None:
            request.CopyFrom(wanted)
        request.header.CopyFrom(self._reading(linearizable))
        return self.call(pb.DescribeAclsResponse, request, timeout_ms=timeout_ms)

    def alter_user_scram_credentials(
        self,
        upsertions: Iterable[pb.ScramCredentialUpsertion] = (),
        deletions: Iterable[pb.ScramCredentialDeletion] = (),
        *,
        timeout_ms: int | None = None,
    ) -> pb.AlterUserScramCredentialsResponse:
        """Set SCRAM credentials, made by `scram_credential`, and remove others. EntriesFailed."""
        request = pb.AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions)
        return checked(self.call(pb.AlterUserScramCredentialsResponse, request, timeout_ms=timeout_ms))

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> pb.DescribeUserScramCredentialsResponse:
        """Return the mechanisms and iterations of these users, or of all."""
        request = pb.DescribeUserScramCredentialsRequest(header=self._reading(None))
        if users is not None:
            request.users.CopyFrom(pb.ScramUserNames(values=[pb.ScramUserName(name=user) for user in names_in(users)]))
        return checked(self.call(pb.DescribeUserScramCredentialsResponse, request, timeout_ms=timeout_ms))

    # -- what one node holds -----------------------------------------------------------------------------------------

    def create_snapshot(self, endpoint: Endpoint, *, timeout_ms: int | None = None) -> pb.CreateSnapshotResponse:
        """Make the node at a gRPC endpoint write a snapshot of its metadata now. ApiError, ClusterUnreachable."""
        return self.call_at(endpoint, pb.CreateSnapshotResponse, pb.CreateSnapshotRequest(), timeout_ms=timeout_ms)

    def list_snapshots(self, endpoint: Endpoint, *, timeout_ms: int | None = None) -> pb.ListSnapshotsResponse:
        """Return the snapshots of the node at a gRPC endpoint. ApiError, ClusterUnreachable."""
        return self.call_at(endpoint, pb.ListSnapshotsResponse, pb.ListSnapshotsRequest(), timeout_ms=timeout_ms)

    def describe_metadata(
        self, endpoint: Endpoint, *, reread_log: bool = False, at_offset: int = 0, timeout_ms: int | None = None
    ) -> pb.DescribeMetadataResponse:
        """Return the metadata position and digests of the node at a gRPC endpoint."""
        request = pb.DescribeMetadataRequest(reread_log=reread_log, at_offset=at_offset)
        return self.call_at(endpoint, pb.DescribeMetadataResponse, request, timeout_ms=timeout_ms)

    # -- log directories -----------------------------------------------------------------------------------------------

    def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str], *, timeout_ms: int | None = None
    ) -> pb.AlterReplicaLogDirsResponse:
        """Make a broker move replicas to log directories; "any" drops a running move. EntriesFailed."""
        paths: dict[str, dict[str, list[int]]] = {}
        for key, path in moves.items():
            name, index = partition_in(key)
            paths.setdefault(path, {}).setdefault(name, []).append(index)
        request = pb.AlterReplicaLogDirsRequest(
            dirs=[
                pb.AlterReplicaLogDir(
                    path=path,
                    topics=[pb.AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
                )
                for path, topics in paths.items()
            ]
        )
        return checked(self.call_broker(broker_id, pb.AlterReplicaLogDirsResponse, request, timeout_ms=timeout_ms))

    def describe_log_dirs(
        self, broker_id: int, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> pb.DescribeLogDirsResponse:
        """Return a broker's log directories with their replicas, of all topics or of these partitions."""
        request = LogDirFilter(partitions=None if partitions is None else list(partitions)).request()
        return self.call_broker(broker_id, pb.DescribeLogDirsResponse, request, timeout_ms=timeout_ms)

    def online_log_dir(self, broker_id: int, log_dir: str, *, timeout_ms: int | None = None) -> pb.OnlineLogDirResponse:
        """Bring a log directory that failed back, after its disk was repaired. ApiError with the reason if it stays offline."""
        request = pb.OnlineLogDirRequest(log_dir=log_dir)
        return self.call_broker(broker_id, pb.OnlineLogDirResponse, request, timeout_ms=timeout_ms)

    def resolve_replica_copy(
        self, broker_id: int, path: str, *, promote: bool, timeout_ms: int | None = None
    ) -> pb.ResolveReplicaCopyResponse:
        """Promote a kept copy to the replica's log, or drop it. ApiError."""
        request = pb.ResolveReplicaCopyRequest(path=path, promote=promote)
        return self.call_broker(broker_id, pb.ResolveReplicaCopyResponse, request, timeout_ms=timeout_ms)

    # -- frozen results ------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Create a topic, by default with the cluster's defaults, and return its id. ApiError."""
        topic = pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
        for key, value in (configs or {}).items():
            topic.configs.add(name=key, value=value)
        return self.create_topics([topic], timeout_ms=timeout_ms).topics[0].topic_id

    def topics(
        self, names: Iterable[str] | None = None, *, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> dict[str, Topic]:
        """Return topics by name, all or the named ones. ApiError UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist."""
        return topics_of(self.describe_topics(names, linearizable=linearizable, timeout_ms=timeout_ms))

    def cluster(self, *, linearizable: bool | None = None, timeout_ms: int | None = None) -> Cluster:
        """Return the cluster and its members, fenced brokers too. ApiError."""
        response = self.describe_cluster(include_fenced_brokers=True, linearizable=linearizable, timeout_ms=timeout_ms)
        return cluster_of(response)

    def reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> Reassignments:
        """Return running and queued reassignments, of all partitions or of these, and the plans for rollbacks. ApiError."""
        return reassignments_of(self.list_partition_reassignments(partitions, linearizable=linearizable, timeout_ms=timeout_ms))

    def log_dirs(
        self, broker_id: int, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> tuple[LogDir, ...]:
        """Return the log directories of a broker with the replicas in them, all or the named ones. ApiError."""
        return log_dirs_of(self.describe_log_dirs(broker_id, partitions, timeout_ms=timeout_ms))


def _kafka_channels(security: KafkaSecurity | None, user: str | None, client_id: str) -> Transport:
    from .kafka_channels import KafkaChannels
    from .kafka_security import PLAINTEXT

    if user is not None:
        raise ValueError(
            "user and password are of gRPC endpoints; a cluster that speaks the Kafka protocol takes them in `kafka`"
        )
    return KafkaChannels(security or PLAINTEXT, client_id)


def left_ms(deadline: float) -> int:
    """Return the time until a moment of `time.monotonic`, at least 1: a timeout of 0 is rejected."""
    return max(1, int((deadline - time.monotonic()) * 1000))

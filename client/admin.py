"""`AdminClient`: the admin API from a program that has threads and no event loop.

Theory of operation. A call goes to the active controller if it is known, else to the next bootstrap server; any node will do,
since brokers forward. Every answer says who the active controller is, so the second call takes the direct way. NOT_CONTROLLER and
broken connections move a call to the next node, with a short growing pause, until its deadline; then `ClusterUnreachable` says
whom it asked. A write carries an id through all its sendings (`rpc/request_ids.py`): whichever of them took effect, it did so
once, and the answer is that of the one that did. Without ids a write whose connection broke may have taken effect before it is
sent again, and the answer to the second sending then tells (TOPIC_ALREADY_EXISTS, say). An error of the whole request raises
`ApiError`; errors of single topics or partitions stand in the response, and `raise_first_error` turns the first of them into an
ApiError for callers that want all or nothing.

Reads see committed state, which may be a little old. `min_offset` demands that of your last write, wherever it is read;
`linearizable` that of everybody's: then a majority of the controllers has to confirm that the one which answers still leads.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import grpc

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.config.endpoints import parse_servers
from kraftlab.config.resources import ResourceType
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.quorum.core.types import Endpoint
from kraftlab.rpc.methods import API_OF_RESPONSE, AdminRequest, Response
from kraftlab.rpc.request_ids import RequestIds

from .channels import Channels, authentication_error
from .config_parts import ConfigResource, in_parts
from .errors import ClusterUnreachable, api_error, header_error
from .moves import NO_OPTIONS, MoveOptions
from .partitions import (
    DeletedRecords,
    NewPartitions,
    create_partitions_request,
    delete_records,
    describe_whole,
    elect_leaders_request,
)
from .results import Cluster, LogDir, Reassignments, Topic, cluster_of, log_dirs_of, reassignments_of, topics_of
from .sendings import Sendings, fault_of, unreachable, was_never_sent
from .stream import CallStream

logger = logging.getLogger("kraftlab.client")

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.5
"""So that a client finds a new controller at most half the election's time after it."""
_LONGEST_PAUSE_S = 0.25
_ATTEMPT_TIMEOUT_S = 15.0
_RECONNECT_S = 1.0
"""For so long a channel may repeat how its last attempt failed, though the node listens again: it does not try all the time."""
_SILENT_S = 0.5
"""A call that takes longer for want of an answer says so once, to the logger `kraftlab.client`."""
_REFUSED_PATIENCE_S = 3.0
"""How long a call goes on asking when no admin API is at any of the addresses: long enough for a restart."""
_MOVED_ON = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})

TopicPartition = tuple[str, int]


class AboutConfigs(AdminRequest, Protocol):
    """A request about the configs of resources."""

    @property
    def resources(self) -> Iterable[ConfigResource]: ...


class Result(Protocol):
    """The outcome of one topic, partition or resource of a request; some have an `error_message` as well."""

    @property
    def error_code(self) -> int: ...


class AdminClient:
    """A client of one cluster. Thread-safe; use as a context manager, or call `close`.

    `bootstrap_servers` is `host:port[,…]` of any nodes' gRPC endpoints. `timeout_ms` bounds each call with its retries.
    `linearizable`: what describe and list calls that do not say it themselves are. `user` and `password`: who the calls come
    from; a node that does not know them raises ApiError SASL_AUTHENTICATION_FAILED. Without: ANONYMOUS. `client_id`: what the
    client calls itself; quotas can be about it. `exactly_once`: whether writes get ids, so that a write that is sent again takes
    effect once.
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
    ) -> None:
        self._bootstrap = parse_servers(bootstrap_servers)
        self._timeout_ms = timeout_ms
        self._cluster_id = cluster_id
        self._linearizable = linearizable
        self._channels = Channels(user, password, client_id)
        self._request_ids = RequestIds(exactly_once)
        self._leader: Endpoint | None = None
        self._newest_offset = 0
        """The newest metadata offset that an answer reflected: no read of this client goes back behind it, at whatever node."""
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
        """Where the active controller answers, as of the last answer that said so."""
        return self._leader

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

        `answer` is the response's type, which names the method. The next node is asked if one has not answered within
        `attempt_timeout_s`; with `once` not if that node may have carried the request out and the request has no id: ApiError
        NETWORK_EXCEPTION or OutcomeUnknown then.
        """
        with self._request_ids.of(API_OF_RESPONSE[answer], request) as is_named:
            return self._call(answer, request, timeout_ms, attempt_timeout_s, once and not is_named, is_named)

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
        sendings = Sendings(API_OF_RESPONSE[answer], once=once)
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
                    # No node may carry it out after this call has given up.
                    request.header.timeout_ms = max(1, int(left_s * 1000))
                try:
                    response = self._attempt(endpoint, answer, request, min(left_s, attempt_timeout_s))
                    self._newest_offset = max(self._newest_offset, response.header.metadata_offset)
                    return response
                except grpc.RpcError as error:
                    sendings.had_no_answer(endpoint, error, had_time=left_s >= attempt_timeout_s)
                except ApiError as error:
                    if error.code not in _MOVED_ON and not (is_named and self._is_early(error, limited, deadline - pause_s)):
                        sendings.was_refused(error)
                        raise
                    sendings.was_sent_on(endpoint, error)
                    if self._leader not in asked:
                        break
                if self._leader == endpoint:
                    self._leader = None
            if self._leader is not None and not sendings.has_failed_at(self._leader) and time.monotonic() < deadline:
                continue
            if sendings.knows_no_name:
                raise ClusterUnreachable(sendings.summary(time.monotonic() - started))
            if sendings.found_nobody:
                deadline = min(deadline, started + _REFUSED_PATIENCE_S)
            if time.monotonic() + pause_s >= deadline:
                raise ClusterUnreachable(sendings.summary(time.monotonic() - started))
            if time.monotonic() - started > _SILENT_S and not is_reported:
                is_reported = True
                logger.info("no answer yet (%s); trying for another %.0f s", sendings.so_far(), deadline - time.monotonic())
            time.sleep(pause_s)
            pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    def _is_early(self, error: ApiError, limited: bool, deadline: float) -> bool:
        """Whether a node gave up before this client does: one that is shutting down, say."""
        return error.code is ErrorCode.REQUEST_TIMED_OUT and not limited and time.monotonic() < deadline

    def call_at(
        self, endpoint: Endpoint, answer: type[Response], request: AdminRequest, *, timeout_ms: int | None = None
    ) -> Response:
        """Sends a request to that node and no other. ApiError, ClusterUnreachable."""
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
        """Sends a request to that broker. ApiError BROKER_NOT_AVAILABLE if no such broker is registered."""
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
                    request.header.ClearField("timeout_ms")  # That of the next one is what is left.
        raise AssertionError("the second attempt returns or raises")

    def endpoint_of(self, node_id: int) -> Endpoint:
        """Where a node answers, broker or controller. ApiError BROKER_NOT_AVAILABLE if no such node is registered."""
        self.describe_cluster(include_fenced_brokers=True)
        endpoint = self._brokers.get(node_id) or self._controllers.get(node_id)
        if endpoint is None:
            known = ",".join(map(str, sorted({*self._brokers, *self._controllers}))) or "none"
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not registered; registered nodes: {known}")
        return endpoint

    def open_stream(self) -> CallStream:
        """A pipelined stream to the active controller. ClusterUnreachable if nobody says in time where that is."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        self.describe_cluster()
        while self._leader is None:
            if time.monotonic() > deadline:
                raise ClusterUnreachable(
                    f"no node has said within {self._timeout_ms / 1000:g} s where the active controller is; "
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
        """The header of a read; None: as the client was told to read. Never older than what this client has seen already."""
        is_linearizable = self._linearizable if linearizable is None else linearizable
        read_mode = pb.READ_MODE_LINEARIZABLE if is_linearizable else pb.READ_MODE_COMMITTED
        return pb.RequestHeader(min_offset=max(min_offset, self._newest_offset), read_mode=read_mode)

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Iterable[pb.CreatableTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.CreateTopicsResponse:
        """Creates topics; results per topic stand in the response."""
        request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return self.call(pb.CreateTopicsResponse, request, timeout_ms=timeout_ms)

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> pb.DeleteTopicsResponse:
        request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=name) for name in names])
        return self.call(pb.DeleteTopicsResponse, request, timeout_ms=timeout_ms)

    def describe_topics(
        self,
        names: Iterable[str] | None = None,
        *,
        min_offset: int = 0,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> pb.DescribeTopicPartitionsResponse:
        """Topics with partitions, reassignments and dynamic configs; none named: every topic. All is as of one metadata offset,
        unless it fills more than one answer, of which each is as of its own: the header's is the first, and oldest.
        """
        request = pb.DescribeTopicPartitionsRequest(header=self._reading(linearizable, min_offset))
        if names is not None:
            request.topics.CopyFrom(pb.TopicNames(names=names))
        return describe_whole(request, lambda part: self.call(pb.DescribeTopicPartitionsResponse, part, timeout_ms=timeout_ms))

    def create_partitions(
        self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.CreatePartitionsResponse:
        """Gives topics more partitions; results per topic stand in the response."""
        request = create_partitions_request(topics, validate_only)
        return self.call(pb.CreatePartitionsResponse, request, timeout_ms=timeout_ms)

    def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int | None = None
    ) -> pb.ElectLeadersResponse:
        """Elects leaders of these partitions, or (None) of all that need it; results per partition stand in the response."""
        request = elect_leaders_request(election_type, partitions)
        return self.call(pb.ElectLeadersResponse, request, timeout_ms=timeout_ms)

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, DeletedRecords]:
        """Deletes the records below each offset (-1: all that are committed), at the leaders."""
        return delete_records(self, offsets, timeout_ms)

    # -- configs -----------------------------------------------------------------------------------------------------

    def incremental_alter_configs(
        self, resources: Iterable[pb.AlterConfigsResource], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.IncrementalAlterConfigsResponse:
        """Changes dynamic configs, each resource where that has to be asked; results per resource stand in the response."""

        def ask(node: int | None, part: Sequence[pb.AlterConfigsResource]) -> pb.IncrementalAlterConfigsResponse:
            request = pb.IncrementalAlterConfigsRequest(resources=part, validate_only=validate_only)
            return self._ask_about_configs(node, pb.IncrementalAlterConfigsResponse, request, timeout_ms)

        return in_parts(list(resources), ask, lambda response: response.responses)

    def describe_configs(
        self, resources: Iterable[pb.DescribeConfigsResource], *, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> pb.DescribeConfigsResponse:
        """Values in force with everything that has a say in them (synonyms), each resource where that has to be asked."""

        def ask(node: int | None, part: Sequence[pb.DescribeConfigsResource]) -> pb.DescribeConfigsResponse:
            header = self._reading(linearizable)
            request = pb.DescribeConfigsRequest(header=header, resources=part, include_synonyms=True)
            return self._ask_about_configs(node, pb.DescribeConfigsResponse, request, timeout_ms)

        return in_parts(list(resources), ask, lambda response: response.results)

    def list_config_resources(
        self, resource_types: Iterable[int] = (), *, timeout_ms: int | None = None
    ) -> pb.ListConfigResourcesResponse:
        """What has configs; of these types, or (none named) of all."""
        request = pb.ListConfigResourcesRequest(header=self._reading(None), resource_types=resource_types)
        return self.call(pb.ListConfigResourcesResponse, request, timeout_ms=timeout_ms)

    def _ask_about_configs(
        self, node: int | None, answer: type[Response], request: AboutConfigs, timeout_ms: int | None
    ) -> Response:
        """A broker that cannot be asked has its configs changed and described by the active controller, which takes any. A
        controller describes its own, and the active one changes them. Loggers are a node's own, a controller's as well.
        """
        with self._request_ids.of(API_OF_RESPONSE[answer], request):
            return self._ask_node(node, answer, request, timeout_ms)

    def _ask_node(self, node: int | None, answer: type[Response], request: AboutConfigs, timeout_ms: int | None) -> Response:
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
        return self.call(pb.AlterClientQuotasResponse, request, timeout_ms=timeout_ms)

    def describe_client_quotas(
        self, components: Iterable[pb.QuotaFilterComponent] = (), *, strict: bool = False, timeout_ms: int | None = None
    ) -> pb.DescribeClientQuotasResponse:
        request = pb.DescribeClientQuotasRequest(header=self._reading(None), components=components, strict=strict)
        return self.call(pb.DescribeClientQuotasResponse, request, timeout_ms=timeout_ms)

    def update_features(
        self, updates: Iterable[pb.FeatureUpdate], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.UpdateFeaturesResponse:
        """Finalizes all of the levels or none. ApiError INVALID_UPDATE_VERSION."""
        request = pb.UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
        return self.call(pb.UpdateFeaturesResponse, request, timeout_ms=timeout_ms)

    def api_versions(self, *, timeout_ms: int | None = None) -> pb.ApiVersionsResponse:
        """What a node offers, and the features of the cluster."""
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
        """Starts a reassignment to the replicas given, or cancels the running or queued one (None).

        Partitions in `expected` are left alone unless those are their replicas now.
        """
        topics: dict[str, pb.ReassignableTopic] = {}
        for (name, index), replicas in targets.items():
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
        """Cancels whatever moves or is queued, in these topics or (None) everywhere, in one call."""
        request = pb.AlterPartitionReassignmentsRequest(cancel_all=topics is None, cancel_topics=topics or ())
        return self._reassign(request, options, timeout_ms)

    def rollback_reassignment(
        self, plan_id: str, *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.AlterPartitionReassignmentsResponse:
        """Goes back to what the partitions of a plan were before it. Replicas that are to change directories on their broker
        stand in the answers; `alter_replica_log_dirs` moves them.
        """
        return self._reassign(pb.AlterPartitionReassignmentsRequest(rollback_plan_id=plan_id), options, timeout_ms)

    def forget_plans(self, plan_ids: Iterable[str], *, timeout_ms: int | None = None) -> pb.AlterPartitionReassignmentsResponse:
        """Forget plans, all or none; what they started goes on. ApiError RESOURCE_NOT_FOUND."""
        return self._reassign(pb.AlterPartitionReassignmentsRequest(forget_plans=plan_ids), NO_OPTIONS, timeout_ms)

    def _reassign(
        self, request: pb.AlterPartitionReassignmentsRequest, options: MoveOptions, timeout_ms: int | None
    ) -> pb.AlterPartitionReassignmentsResponse:
        options.fill(request)
        return self.call(pb.AlterPartitionReassignmentsResponse, request, timeout_ms=timeout_ms)

    def alter_replication_factors(
        self, factors: Mapping[str, int], *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.AlterReplicationFactorsResponse:
        """Gives each partition of the topics so many replicas (KIP-179); with `validate_only` the plan for that."""
        request = pb.AlterReplicationFactorsRequest(
            topics=[pb.TopicReplicationFactor(name=name, replication_factor=factor) for name, factor in factors.items()]
        )
        options.fill(request)
        return self.call(pb.AlterReplicationFactorsResponse, request, timeout_ms=timeout_ms)

    def alter_partition_counts(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.AlterPartitionCountsResponse:
        """Adds partitions to topics until they have so many (KIP-179)."""
        request = pb.AlterPartitionCountsRequest(
            topics=[pb.TopicPartitionCount(name=name, count=count) for name, count in counts.items()],
            validate_only=validate_only,
        )
        return self.call(pb.AlterPartitionCountsResponse, request, timeout_ms=timeout_ms)

    def alter_inter_broker_throttle(
        self,
        broker_id: int | None,
        *,
        leader_rate: int | None = None,
        follower_rate: int | None = None,
        timeout_ms: int | None = None,
    ) -> pb.AlterInterBrokerThrottleResponse:
        """Sets the replication throttles of a broker, or (None) of all without their own; a negative rate removes one."""
        request = pb.AlterInterBrokerThrottleRequest(broker_id=broker_id, leader_rate=leader_rate, follower_rate=follower_rate)
        return self.call(pb.AlterInterBrokerThrottleResponse, request, timeout_ms=timeout_ms)

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> pb.ListPartitionReassignmentsResponse:
        """The reassignments that run, of all partitions or of those given.

        Only the active controller knows their progress: an answer without progress is asked for a second time, there.
        """
        request = pb.ListPartitionReassignmentsRequest(header=self._reading(linearizable))
        if partitions is not None:
            topics: dict[str, pb.ListReassignmentsTopic] = {}
            for name, index in partitions:
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
        """Takes a broker out of the cluster, only if it is registered with that epoch. ApiError BROKER_ID_NOT_REGISTERED,
        STALE_BROKER_EPOCH.
        """
        request = pb.UnregisterBrokerRequest(broker_id=broker_id, expected_broker_epoch=expected_epoch)
        return self.call(pb.UnregisterBrokerResponse, request, timeout_ms=timeout_ms, once=True)

    def init_producer_id(self, broker_id: int, *, timeout_ms: int | None = None) -> pb.InitProducerIdResponse:
        """An id for an idempotent producer, which nobody had before, from that broker."""
        request = pb.InitProducerIdRequest()
        return self.call_broker(broker_id, pb.InitProducerIdResponse, request, timeout_ms=timeout_ms)

    def describe_quorum(self, *, linearizable: bool | None = None, timeout_ms: int | None = None) -> pb.DescribeQuorumResponse:
        request = pb.DescribeQuorumRequest(header=self._reading(linearizable))
        return self.call(pb.DescribeQuorumResponse, request, timeout_ms=timeout_ms)

    def add_raft_voter(
        self, voter_id: int, directory_id: str, listeners: Mapping[str, Endpoint], *, timeout_ms: int | None = None
    ) -> pb.AddRaftVoterResponse:
        """Makes a node that follows the metadata log a voter (KIP-853); returns when that is committed. ApiError."""
        request = pb.AddRaftVoterRequest(
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[pb.QuorumEndpoint(name=name, host=at.host, port=at.port) for name, at in sorted(listeners.items())],
        )
        return self._change_quorum(pb.AddRaftVoterResponse, request, timeout_ms)

    def remove_raft_voter(self, voter_id: int, directory_id: str, *, timeout_ms: int | None = None) -> pb.RemoveRaftVoterResponse:
        """Makes a voter an observer (KIP-853); returns when that is committed. ApiError."""
        request = pb.RemoveRaftVoterRequest(voter_id=voter_id, voter_directory_id=directory_id)
        return self._change_quorum(pb.RemoveRaftVoterResponse, request, timeout_ms)

    def transfer_leadership(
        self, voter_id: int, directory_id: str = "", *, timeout_ms: int | None = None
    ) -> pb.TransferLeadershipResponse:
        """Makes the leader of the quorum resign in a voter's favour, which is not elected yet when this returns. ApiError."""
        request = pb.TransferLeadershipRequest(voter_id=voter_id, voter_directory_id=directory_id)
        return self._change_quorum(pb.TransferLeadershipResponse, request, timeout_ms)

    def _change_quorum(self, answer: type[Response], request: AdminRequest, timeout_ms: int | None) -> Response:
        """Waits for one answer: asked again while the change is under way or done, the leader would only say so."""
        return self.call(answer, request, timeout_ms=timeout_ms, attempt_timeout_s=math.inf, once=True)

    # -- access ------------------------------------------------------------------------------------------------------

    def create_acls(self, creations: Iterable[pb.AclCreation], *, timeout_ms: int | None = None) -> pb.CreateAclsResponse:
        """Adds access rules; one result for each."""
        request = pb.CreateAclsRequest(creations=creations)
        return self.call(pb.CreateAclsResponse, request, timeout_ms=timeout_ms)

    def delete_acls(self, filters: Iterable[pb.DeleteAclsFilter], *, timeout_ms: int | None = None) -> pb.DeleteAclsResponse:
        """Removes what any of the filters matches; one result with the rules for each."""
        request = pb.DeleteAclsRequest(filters=filters)
        return self.call(pb.DeleteAclsResponse, request, timeout_ms=timeout_ms)

    def describe_acls(
        self,
        wanted: pb.DescribeAclsRequest | None = None,
        *,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> pb.DescribeAclsResponse:
        """The access rules that the filter of a request matches, or all."""
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
        """Sets (`scram_credential` makes one) and removes SCRAM credentials; one result for each user."""
        request = pb.AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions)
        return self.call(pb.AlterUserScramCredentialsResponse, request, timeout_ms=timeout_ms)

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> pb.DescribeUserScramCredentialsResponse:
        """Mechanisms and iterations of the users named, or of all."""
        request = pb.DescribeUserScramCredentialsRequest(header=self._reading(None))
        if users is not None:
            request.users.CopyFrom(pb.ScramUserNames(values=[pb.ScramUserName(name=user) for user in users]))
        return self.call(pb.DescribeUserScramCredentialsResponse, request, timeout_ms=timeout_ms)

    # -- what one node holds -----------------------------------------------------------------------------------------

    def create_snapshot(self, endpoint: Endpoint, *, timeout_ms: int | None = None) -> pb.CreateSnapshotResponse:
        """Lets the node at that gRPC endpoint write a snapshot of its metadata now. ApiError, ClusterUnreachable."""
        return self.call_at(endpoint, pb.CreateSnapshotResponse, pb.CreateSnapshotRequest(), timeout_ms=timeout_ms)

    def list_snapshots(self, endpoint: Endpoint, *, timeout_ms: int | None = None) -> pb.ListSnapshotsResponse:
        """The snapshots that the node at that gRPC endpoint keeps. ApiError, ClusterUnreachable."""
        return self.call_at(endpoint, pb.ListSnapshotsResponse, pb.ListSnapshotsRequest(), timeout_ms=timeout_ms)

    def describe_metadata(
        self, endpoint: Endpoint, *, reread_log: bool = False, at_offset: int = 0, timeout_ms: int | None = None
    ) -> pb.DescribeMetadataResponse:
        """What the node at that gRPC endpoint itself holds."""
        request = pb.DescribeMetadataRequest(reread_log=reread_log, at_offset=at_offset)
        return self.call_at(endpoint, pb.DescribeMetadataResponse, request, timeout_ms=timeout_ms)

    # -- log directories -----------------------------------------------------------------------------------------------

    def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str], *, timeout_ms: int | None = None
    ) -> pb.AlterReplicaLogDirsResponse:
        """Asks a broker to move replicas to the log directories given; "any" drops a running move."""
        paths: dict[str, dict[str, list[int]]] = {}
        for (name, index), path in moves.items():
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
        return self.call_broker(broker_id, pb.AlterReplicaLogDirsResponse, request, timeout_ms=timeout_ms)

    def describe_log_dirs(
        self, broker_id: int, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> pb.DescribeLogDirsResponse:
        """A broker's log directories with what they hold, of all topics or of the partitions given."""
        request = pb.DescribeLogDirsRequest()
        if partitions is not None:
            topics: dict[str, pb.DescribableLogDirTopic] = {}
            for name, index in partitions:
                topics.setdefault(name, pb.DescribableLogDirTopic(topic=name)).partitions.append(index)
            request.topics.CopyFrom(pb.DescribableLogDirTopics(values=topics.values()))
        return self.call_broker(broker_id, pb.DescribeLogDirsResponse, request, timeout_ms=timeout_ms)

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
        """Create a topic, with the cluster's defaults for what is left out, and return its id. ApiError."""
        topic = pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
        for key, value in (configs or {}).items():
            topic.configs.add(name=key, value=value)
        response = self.create_topics([topic], timeout_ms=timeout_ms)
        raise_first_error(response.topics)
        return response.topics[0].topic_id

    def topics(
        self, names: Iterable[str] | None = None, *, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> dict[str, Topic]:
        """Return topics by name, all or the named ones. ApiError UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist."""
        response = self.describe_topics(names, linearizable=linearizable, timeout_ms=timeout_ms)
        raise_first_error(response.topics)
        return topics_of(response)

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
        """Return what runs and waits, of all partitions or the named ones, and which plans can be rolled back. ApiError."""
        return reassignments_of(self.list_partition_reassignments(partitions, linearizable=linearizable, timeout_ms=timeout_ms))

    def log_dirs(
        self, broker_id: int, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> tuple[LogDir, ...]:
        """Return the log directories of a broker with the replicas in them, all or the named ones. ApiError."""
        return log_dirs_of(self.describe_log_dirs(broker_id, partitions, timeout_ms=timeout_ms))


def raise_first_error(results: Iterable[Result]) -> None:
    """ApiError of the first result (anything with error_code and error_message) that is one."""
    for result in results:
        if result.error_code:
            raise api_error(result.error_code, getattr(result, "error_message", None))


def left_ms(deadline: float) -> int:
    """The time until a moment of `time.monotonic`, 1 at least: who asks for 0 is refused."""
    return max(1, int((deadline - time.monotonic()) * 1000))

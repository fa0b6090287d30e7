"""`AdminClient`: the admin API from a program that has threads and no event loop.

Theory of operation. `caller.py` chooses the node of each call and repeats calls. An error of the whole request raises `ApiError`.
If a request names several topics, partitions or others, and some of them are refused, `EntriesFailed` has the error of each
(`entries.py`); it is an ApiError too.

Reads return frozen values (`results.py`). Changes return nothing, or the response if its entries have results. `call` sends any
other request of the admin API, for instance about access rules, quotas and features, and returns the response.

Reads return committed state, which may be slightly old. `min_offset` includes the caller's last write, at every node.
`linearizable` includes all acknowledged writes: a majority of the controllers confirms that the answering one still leads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.endpoints import KAFKA, named_protocol, parse_servers
from kraftlab.config.resources import ResourceType
from kraftlab.rpc.methods import AdminRequest, Response

from .channels import Channels, Transport
from .config_parts import in_parts
from .entries import answer_of, checked, read
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
from .results import (
    Cluster,
    DescribedConfig,
    LogDir,
    Quorum,
    Reassignments,
    Topic,
    cluster_of,
    configs_of,
    log_dirs_of,
    quorum_of,
    reassignments_of,
    topics_of,
)
from .security import NO_SECURITY, ClientSecurity

if TYPE_CHECKING:
    from .groups import CommittedOffset, ConsumerGroup, GroupCalls, ListedGroup
    from .kafka_channels import KafkaChannels

TopicPartition = tuple[str, int]


class AdminClient(LogDirCalls):
    """A client of one cluster. Thread-safe; use as a context manager, or call `close`.

    `bootstrap_servers` is `host:port[,…]` of any nodes' gRPC endpoints. `timeout_ms` limits each call with its retries.
    `linearizable` is the default for describe and list calls. `security` has TLS and the user of the calls, which are from
    ANONYMOUS without one; `user` and `password` are its short form for a gRPC listener without TLS. A node that does not know the
    user raises ApiError SASL_AUTHENTICATION_FAILED. `client_id` is the client's name for quotas. `exactly_once`: writes get ids,
    and a repeated write takes effect once. `on_wait` gets a line, in another thread, when a call has waited for 3 s because no
    majority of the voters answers.

    `kafka://host:port[,…]` names KAFKA listeners, or brokers of Apache Kafka. The Kafka protocol has no ids of writes and no
    linearizable reads; UNSUPPORTED_VERSION refuses what a cluster cannot do.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_ms: int = 30_000,
        cluster_id: str = "",
        linearizable: bool = False,
        security: ClientSecurity | None = None,
        user: str | None = None,
        password: str | None = None,
        client_id: str = "",
        exactly_once: bool = True,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        bootstrap = parse_servers(bootstrap_servers)
        if security is not None and user is not None:
            raise ValueError("`security` names the user; leave user and password out")
        self.security = security or ClientSecurity(user=user, password=password or "")
        super().__init__(
            bootstrap,
            _channels(named_protocol(bootstrap_servers), self.security, client_id),
            timeout_ms=timeout_ms,
            cluster_id=cluster_id,
            linearizable=linearizable,
            exactly_once=exactly_once,
            on_wait=on_wait,
        )

        self._client_id = client_id
        self._listeners: tuple[KafkaChannels, tuple[Endpoint, ...]] | None = None

    def close(self) -> None:
        """Close all connections."""
        self.channels.close()
        if self._listeners is not None:
            self._listeners[0].close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, request: AdminRequest) -> None:
        """Refuse a request that the cluster's protocol cannot carry, before a program changes anything. ApiError."""
        self.channels.check(request)

    # -- topics ------------------------------------------------------------------------------------------------------

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

    def create_topics(
        self, topics: Iterable[pb.CreatableTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> pb.CreateTopicsResponse:
        """Create topics. EntriesFailed names the topics that were refused."""
        request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return self.call(pb.CreateTopicsResponse, request, timeout_ms=timeout_ms)

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics. EntriesFailed names the topics that were refused."""
        request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=name) for name in names_in(names)])
        self.call(pb.DeleteTopicsResponse, request, timeout_ms=timeout_ms)

    def describe_topics(
        self,
        names: Iterable[str] | None = None,
        *,
        min_offset: int = 0,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, Topic]:
        """Return topics by name, with partitions and dynamic configs, by default every topic. EntriesFailed names the topics that
        do not exist; `answer_of` returns the others.
        """
        request = pb.DescribeTopicPartitionsRequest(header=self._reading(linearizable, min_offset))
        if names is not None:
            request.topics.CopyFrom(pb.TopicNames(names=names_in(names)))
        whole = describe_whole(request, lambda part: self._send(pb.DescribeTopicPartitionsResponse, part, timeout_ms=timeout_ms))
        return read(whole, topics_of)

    def create_partitions(
        self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Add partitions to topics. EntriesFailed names the topics that were refused."""
        request = create_partitions_request(topics, validate_only)
        self.call(pb.CreatePartitionsResponse, request, timeout_ms=timeout_ms)

    def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int | None = None
    ) -> pb.ElectLeadersResponse:
        """Elect leaders of these partitions, or of all that need one.

        EntriesFailed names the partitions without an election; those that need none have ELECTION_NOT_NEEDED.
        """
        request = elect_leaders_request(election_type, partitions)
        return self.call(pb.ElectLeadersResponse, request, timeout_ms=timeout_ms)

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records below each offset at the leaders; -1 deletes all committed records. EntriesFailed names
        the partitions that were refused.
        """
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
        self, resources: Iterable[tuple[int, str]], *, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> dict[tuple[int, str], tuple[DescribedConfig, ...]]:
        """Return the effective configs of resources (type and name), each from the node that has it. EntriesFailed names those
        that were refused; `answer_of` returns the others.
        """

        def ask(node: int | None, part: Sequence[pb.DescribeConfigsResource]) -> pb.DescribeConfigsResponse:
            header = self._reading(linearizable)
            request = pb.DescribeConfigsRequest(header=header, resources=part, include_synonyms=True)
            return self._call_about_configs(node, pb.DescribeConfigsResponse, request, timeout_ms)

        wanted = [pb.DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in resources]
        return read(in_parts(wanted, ask, lambda response: response.results), configs_of)

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
        options.fill(request)
        return self.call(pb.AlterPartitionReassignmentsResponse, request, timeout_ms=timeout_ms)

    def cancel_reassignments(
        self,
        topics: Iterable[str] | None = None,
        *,
        validate_only: bool = False,
        force: bool = False,
        timeout_ms: int | None = None,
    ) -> pb.CancelReassignmentsResponse:
        """Cancel all running and queued reassignments, of these topics or everywhere, in one change. With `force` also if a
        partition loses its leader. EntriesFailed.
        """
        request = pb.CancelReassignmentsRequest(validate_only=validate_only, force=force)
        if topics is not None:
            request.topics.CopyFrom(pb.TopicNames(names=names_in(topics)))
        return self.call(pb.CancelReassignmentsResponse, request, timeout_ms=timeout_ms)

    def rollback_plan(
        self, plan_id: str, *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.RollbackPlanResponse:
        """Restore the partitions of a plan as they were before the plan. The answers name replicas that change directories on
        their broker; `alter_replica_log_dirs` moves them. EntriesFailed.
        """
        request = pb.RollbackPlanRequest(rollback_plan_id=plan_id)
        options.fill(request)
        return self.call(pb.RollbackPlanResponse, request, timeout_ms=timeout_ms)

    def forget_plans(self, plan_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Forget all of these plans or none; their reassignments go on. ApiError RESOURCE_NOT_FOUND."""
        request = pb.ForgetPlansRequest(plan_ids=names_in(plan_ids))
        self.call(pb.ForgetPlansResponse, request, timeout_ms=timeout_ms)

    def alter_replication_factors(
        self, factors: Mapping[str, int], *, options: MoveOptions = NO_OPTIONS, timeout_ms: int | None = None
    ) -> pb.AlterReplicationFactorsResponse:
        """Set the replication factor of topics (KIP-179); with `validate_only` only return the plan. EntriesFailed."""
        request = pb.AlterReplicationFactorsRequest(
            topics=[
                pb.TopicReplicationFactor(name=name, replication_factor=number_in(name, factor))
                for name, factor in factors.items()
            ]
        )
        options.fill(request)
        return self.call(pb.AlterReplicationFactorsResponse, request, timeout_ms=timeout_ms)

    def alter_partition_counts(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Add partitions to topics up to these counts (KIP-179). EntriesFailed."""
        request = pb.AlterPartitionCountsRequest(
            topics=[pb.TopicPartitionCount(name=name, count=number_in(name, count)) for name, count in counts.items()],
            validate_only=validate_only,
        )
        self.call(pb.AlterPartitionCountsResponse, request, timeout_ms=timeout_ms)

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        linearizable: bool | None = None,
        timeout_ms: int | None = None,
    ) -> Reassignments:
        """Return running and queued reassignments, of all partitions or of these, and the plans for rollbacks. ApiError.

        Only the active controller knows their progress: an answer without progress is read again from the active controller.
        """
        request = pb.ListPartitionReassignmentsRequest(header=self._reading(linearizable))
        if partitions is not None:
            topics: dict[str, pb.ListReassignmentsTopic] = {}
            for name, index in map(partition_in, partitions):
                topics.setdefault(name, pb.ListReassignmentsTopic(name=name)).partition_indexes.append(index)
            request.topics.CopyFrom(pb.ListReassignmentsTopics(topics=topics.values()))
        response = self.call(pb.ListPartitionReassignmentsResponse, request, timeout_ms=timeout_ms)
        if not response.has_progress and self.leader is not None and (response.topics or response.queued):
            response = self.call(pb.ListPartitionReassignmentsResponse, request, timeout_ms=timeout_ms)
        return reassignments_of(response)

    # -- cluster -----------------------------------------------------------------------------------------------------

    def describe_cluster(
        self, *, include_fenced_brokers: bool = False, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> Cluster:
        """Return the cluster and its members. ApiError."""
        return cluster_of(
            self._members(include_fenced_brokers=include_fenced_brokers, linearizable=linearizable, timeout_ms=timeout_ms)
        )

    def unregister_broker(self, broker_id: int, expected_epoch: int | None = None, *, timeout_ms: int | None = None) -> int:
        """Unregister a broker, with `expected_epoch` only if it is registered with that epoch, and return the metadata offset.
        ApiError BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """
        request = pb.UnregisterBrokerRequest(broker_id=broker_id, expected_broker_epoch=expected_epoch)
        return self.call(pb.UnregisterBrokerResponse, request, timeout_ms=timeout_ms, once=True).header.metadata_offset

    def init_producer_id(self, broker_id: int, *, timeout_ms: int | None = None) -> pb.InitProducerIdResponse:
        """Return a new id for an idempotent producer from a broker. ApiError."""
        request = pb.InitProducerIdRequest()
        return self.call_broker(broker_id, pb.InitProducerIdResponse, request, timeout_ms=timeout_ms)

    def describe_quorum(self, *, linearizable: bool | None = None, timeout_ms: int | None = None) -> Quorum:
        """Return the voters and observers of the metadata quorum. ApiError."""
        request = pb.DescribeQuorumRequest(header=self._reading(linearizable))
        return quorum_of(self.call(pb.DescribeQuorumResponse, request, timeout_ms=timeout_ms))

    def add_raft_voter(
        self, voter_id: int, directory_id: str, listeners: Mapping[str, Endpoint], *, timeout_ms: int | None = None
    ) -> None:
        """Make a node that follows the metadata log a voter (KIP-853). Return when the change is committed. ApiError."""
        request = pb.AddRaftVoterRequest(
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[pb.QuorumEndpoint(name=name, host=at.host, port=at.port) for name, at in sorted(listeners.items())],
        )
        self._change_quorum(pb.AddRaftVoterResponse, request, timeout_ms)

    def remove_raft_voter(self, voter_id: int, directory_id: str, *, timeout_ms: int | None = None) -> None:
        """Make a voter an observer (KIP-853). Return when the change is committed. ApiError."""
        request = pb.RemoveRaftVoterRequest(voter_id=voter_id, voter_directory_id=directory_id)
        self._change_quorum(pb.RemoveRaftVoterResponse, request, timeout_ms)

    def transfer_leadership(self, voter_id: int, directory_id: str = "", *, timeout_ms: int | None = None) -> None:
        """Make the leader of the quorum resign in a voter's favour. The voter is elected after the return. ApiError."""
        request = pb.TransferLeadershipRequest(voter_id=voter_id, voter_directory_id=directory_id)
        self._change_quorum(pb.TransferLeadershipResponse, request, timeout_ms)

    def _change_quorum(self, answer: type[Response], request: AdminRequest, timeout_ms: int | None) -> None:
        """Send a change once and wait for its answer: a repeated request would be refused while the change is under way."""
        self.call(answer, request, timeout_ms=timeout_ms, attempt_timeout_s=math.inf, once=True)

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
    ) -> tuple[LogDir, ...]:
        """Return the log directories of a broker with the replicas in them, all or the named ones. ApiError."""
        request = LogDirFilter(partitions=None if partitions is None else list(partitions)).request()
        return log_dirs_of(self.call_broker(broker_id, pb.DescribeLogDirsResponse, request, timeout_ms=timeout_ms))

    # -- consumer groups -----------------------------------------------------------------------------------------------

    def list_consumer_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> tuple[ListedGroup, ...]:
        """Return the consumer groups by id, of these states and types, by default all. ApiError, ClusterUnreachable."""
        return self.group_calls(timeout_ms).list_groups(states, types)

    def describe_consumer_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, ConsumerGroup]:
        """Return groups with their members. EntriesFailed names unknown groups (GROUP_ID_NOT_FOUND) and has the others."""
        return self.group_calls(timeout_ms).describe(group_ids)

    def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, all or of these partitions. An unknown group has none. EntriesFailed."""
        return self.group_calls(timeout_ms).committed(group_id, partitions)

    def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """Commit offsets for a group without members; a group that does not exist is created. UNKNOWN_MEMBER_ID refuses the
        offsets of a group with members. EntriesFailed.
        """
        self.group_calls(timeout_ms).commit(group_id, offsets)

    def delete_consumer_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete groups without members, with their offsets. EntriesFailed names the groups that were refused."""
        self.group_calls(timeout_ms).delete(group_ids)

    def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Delete committed offsets of topics that no member is subscribed to. EntriesFailed."""
        self.group_calls(timeout_ms).delete_offsets(group_id, partitions)

    def group_calls(self, timeout_ms: int | None = None) -> GroupCalls:
        """Return the group calls, and the offsets of partitions, within one time limit.

        They go over the Kafka protocol. A client of gRPC endpoints finds the brokers' KAFKA listeners in their configs
        (advertised.listeners), and uses its security there too, but for a user without SASL: such calls are from ANONYMOUS.
        UNSUPPORTED_VERSION without such a listener.
        """
        from .groups import GroupCalls
        from .kafka_channels import KafkaChannels

        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if isinstance(self.channels, KafkaChannels):
            return GroupCalls(self.channels, self._bootstrap, limit_ms)
        if self._listeners is None:
            security = self.security if self.security.has_sasl or self.security.tls else NO_SECURITY
            self._listeners = KafkaChannels(security, self._client_id), self._kafka_listeners(limit_ms)
        return GroupCalls(*self._listeners, limit_ms)

    def _kafka_listeners(self, timeout_ms: int) -> tuple[Endpoint, ...]:
        brokers = self.describe_cluster(timeout_ms=timeout_ms).brokers
        named = [(ResourceType.BROKER, str(broker.broker_id)) for broker in brokers]
        described = answer_of(lambda: self.describe_configs(named, timeout_ms=timeout_ms))
        listed = [
            entry.value or "" for configs in described.values() for entry in configs if entry.name == "advertised.listeners"
        ]
        prefix = f"{KAFKA.upper()}://"
        found = [item.removeprefix(prefix) for text in listed for item in text.split(",") if item.startswith(prefix)]
        if not found:
            self.describe_configs(named, timeout_ms=timeout_ms)  # EntriesFailed for a user who may not see them
            text = "no broker that is up has a KAFKA listener, which calls about consumer groups need; add one to its listeners"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        return parse_servers(",".join(found))


def _channels(protocol: str | None, security: ClientSecurity, client_id: str) -> Transport:
    if protocol != KAFKA:
        return Channels(security, client_id)
    from .kafka_channels import KafkaChannels

    return KafkaChannels(security, client_id)

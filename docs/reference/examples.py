"""An example for each method of `AdminClient`, for docs/reference/python.md. mypy checks this file, and a test plays it.

Each function has the name of a method; `generate.py` prints its body.
"""

from __future__ import annotations

from kraftlab import AdminClient, ConfigOperation, EntriesFailed, MoveOptions, NewPartitions, ResourceType, answer_of
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint


def create_topic(client: AdminClient) -> None:
    topic_id = client.create_topic("clicks", partitions=2, replication_factor=2, configs={"retention.ms": "60000"})
    print("created", topic_id)


def create_topics(client: AdminClient) -> None:
    wanted = [pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("orders", "clicks")]
    try:
        client.create_topics(wanted)
    except EntriesFailed as error:
        print("created:", error.done, "refused:", error.failures)


def describe_topics(client: AdminClient) -> None:
    for topic in client.describe_topics().values():
        for partition in topic.partitions:
            print(topic.name, partition.partition_index, partition.leader_id, partition.replica_nodes, partition.isr_nodes)


def delete_topics(client: AdminClient) -> None:
    client.delete_topics(["orders"])


def create_partitions(client: AdminClient) -> None:
    client.create_partitions({"clicks": NewPartitions(3)})


def elect_leaders(client: AdminClient) -> None:
    preferred = 0  # 1: unclean
    response = answer_of(lambda: client.elect_leaders(preferred, [("clicks", 0)]))
    for topic in response.replica_election_results:
        print(topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])


def delete_records(client: AdminClient) -> None:
    for partition, deleted in client.delete_records({("clicks", 0): -1}).items():
        print(partition, "begins at", deleted.low_watermark)


def incremental_alter_configs(client: AdminClient) -> None:
    change = pb.AlterableConfig(name="retention.ms", config_operation=ConfigOperation.SET, value="3600000")
    topic = pb.AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="clicks", configs=[change])
    client.incremental_alter_configs([topic])


def describe_configs(client: AdminClient) -> None:
    for (_, name), configs in client.describe_configs([(ResourceType.TOPIC, "clicks")]).items():
        print(name, {config.name: config.value for config in configs})


def alter_partition_reassignments(client: AdminClient) -> None:
    options = MoveOptions(plan_id="friday", throttle=1_000_000)
    client.alter_partition_reassignments({("clicks", 0): (1, 0), ("clicks", 1): (1, 0)}, options=options)


def list_partition_reassignments(client: AdminClient) -> None:
    for move in client.list_partition_reassignments().running:
        print(move.topic, move.partition_index, move.bytes_left, [blocker.text for blocker in move.blockers])


def cancel_reassignments(client: AdminClient) -> None:
    client.cancel_reassignments(["clicks"])


def rollback_plan(client: AdminClient) -> None:
    client.rollback_plan("friday", options=MoveOptions(force=True))


def forget_plans(client: AdminClient) -> None:
    client.forget_plans(["friday"])


def alter_replication_factors(client: AdminClient) -> None:
    client.alter_replication_factors({"clicks": 1})


def alter_partition_counts(client: AdminClient) -> None:
    client.alter_partition_counts({"clicks": 4})


def describe_cluster(client: AdminClient) -> None:
    cluster = client.describe_cluster(include_fenced_brokers=True)
    print(cluster.leader_id, {broker.broker_id: broker.is_fenced for broker in cluster.brokers})


def unregister_broker(client: AdminClient) -> None:
    client.unregister_broker(2)  # a broker that is down and will not come back


def init_producer_id(client: AdminClient) -> None:
    print(client.init_producer_id(0).producer_id)


def describe_quorum(client: AdminClient) -> None:
    quorum = client.describe_quorum()
    lags = {voter.replica_id: quorum.high_watermark - voter.log_end_offset for voter in quorum.current_voters}
    print(quorum.leader_id, quorum.leader_epoch, lags)


def remove_raft_voter(client: AdminClient) -> None:
    voter = next(voter for voter in client.describe_quorum().current_voters if voter.replica_id == 3001)
    client.remove_raft_voter(3001, voter.replica_directory_id)


def add_raft_voter(client: AdminClient) -> None:
    node = next(node for node in client.describe_quorum().observers if node.replica_id == 3001)
    client.add_raft_voter(3001, node.replica_directory_id, {each.name: Endpoint(each.host, each.port) for each in node.endpoints})


def transfer_leadership(client: AdminClient) -> None:
    client.transfer_leadership(3001)


def alter_replica_log_dirs(client: AdminClient) -> None:
    broker = client.describe_topics(["clicks"])["clicks"].partitions[0].replica_nodes[0]
    path = client.describe_log_dirs(broker)[0].log_dir
    client.alter_replica_log_dirs(broker, {("clicks", 0): path})


def describe_log_dirs(client: AdminClient) -> None:
    for log_dir in client.describe_log_dirs(0):
        print(log_dir.log_dir, log_dir.usable_bytes, [(each.topic, each.partition_size) for each in log_dir.replicas])


def all_log_dirs(client: AdminClient) -> None:
    described = client.all_log_dirs()
    print({broker: len(found.log_dirs) for broker, found in described.brokers.items()}, described.silent)


def replica_log_dirs(client: AdminClient) -> None:
    for replica, found in client.replica_log_dirs([("clicks", 0, 0)]).replicas.items():
        print(replica, found.current_log_dir, found.future_log_dir, found.future_offset_lag)


def log_dir_moves(client: AdminClient) -> None:
    for move in client.log_dir_moves().moves:
        print(move.broker_id, move.replica.topic, move.log_dir, move.eta_ms)


def alter_consumer_group_offsets(client: AdminClient) -> None:
    client.alter_consumer_group_offsets("readers", {("clicks", 0): 0, ("clicks", 1): 0})


def list_consumer_groups(client: AdminClient) -> None:
    print([(group.group_id, group.state) for group in client.list_consumer_groups()])


def describe_consumer_groups(client: AdminClient) -> None:
    for group in client.describe_consumer_groups(["readers"]).values():
        print(group.group_id, group.state, "at broker", group.coordinator_id, [member.client_id for member in group.members])


def list_consumer_group_offsets(client: AdminClient) -> None:
    for partition, committed in client.list_consumer_group_offsets("readers").items():
        print(partition, "goes on at", committed.offset)


def group_calls(client: AdminClient) -> None:
    latest = -1
    committed = client.list_consumer_group_offsets("readers")
    ends = client.group_calls().list_offsets(dict.fromkeys(committed, latest))
    print("lag:", {partition: (ends[partition] or 0) - found.offset for partition, found in committed.items()})


def delete_consumer_group_offsets(client: AdminClient) -> None:
    client.delete_consumer_group_offsets("readers", [("clicks", 1)])


def delete_consumer_groups(client: AdminClient) -> None:
    client.delete_consumer_groups(["readers"])


def call(client: AdminClient) -> None:
    print(client.call(pb.DescribeClientQuotasResponse, pb.DescribeClientQuotasRequest()).entries)


def call_broker(client: AdminClient) -> None:
    print(client.call_broker(0, pb.DescribeLogDirsResponse, pb.DescribeLogDirsRequest()).results)


def call_at(client: AdminClient) -> None:
    request = pb.DescribeClusterRequest()
    print(client.call_at(client.endpoint_of(0), pb.DescribeClusterResponse, request).cluster_id)


def endpoint_of(client: AdminClient) -> None:
    print(client.endpoint_of(3000))


def open_stream(client: AdminClient) -> None:
    with client.open_stream() as stream:
        futures = [stream.submit("DescribeCluster", pb.DescribeClusterRequest()) for _ in range(10)]
        print([future.result() for future in futures])


def check(client: AdminClient) -> None:
    client.check(pb.AlterPartitionReassignmentsRequest(priority=1))


def close(client: AdminClient) -> None:
    client.close()

"""Rights that each call needs, and the place of refusals in responses, as recorded from Apache Kafka."""

from __future__ import annotations

from typing import Any

import immutables
import pytest

from kraftlab.access import NOT_ASKED
from kraftlab.access.admission import RULES
from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.access.calls import Admission
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.metadata.acls import CLUSTER_NAME, Acl, AclsImage, Operation, PatternType, PermissionType, ResourceType
from kraftlab.metadata.image import EMPTY, MetadataImage, TopicImage, TopicsImage
from kraftlab.node.api import admit
from kraftlab.rpc.calls import CALLS
from kraftlab.rpc.methods import METHODS

TOPIC, CLUSTER, GROUP = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
NO_ID = "A" * 22
IDS = {"t": bytes([1]) * 16, "u": bytes([2]) * 16}


def image_of(ids: dict[str, bytes]) -> MetadataImage:
    topics = {topic_id: TopicImage(name, topic_id, immutables.Map()) for name, topic_id in ids.items()}
    return MetadataImage(topics=TopicsImage(immutables.Map(topics), immutables.Map(ids)))


IMAGE = image_of(IDS)


def rights(*rules: tuple[ResourceType, str, Operation] | tuple[ResourceType, str, Operation, PermissionType]) -> Rights:
    """Rights of alice with these ACLs."""
    made = [
        Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, how[0] if how else PermissionType.ALLOW)
        for kind, name, operation, *how in rules
    ]
    acls = AclsImage().after({bytes([number]) * 16: acl for number, acl in enumerate(made)})
    return Authorizer(AccessSettings(is_enabled=True)).rights(acls, "User:alice", "127.0.0.1")


NOTHING = rights()
FREE = Authorizer(AccessSettings()).rights(None, "User:alice", "127.0.0.1")


def on_cluster(operation: Operation) -> Rights:
    return rights((CLUSTER, CLUSTER_NAME, operation))


def completed(admission: Admission, response: Any) -> Any:
    if admission.complete is not None:
        admission.complete(response)
    return response


def test_every_call_has_a_rule() -> None:
    assert {CALLS[api].rights for api in METHODS} <= RULES.keys()


@pytest.mark.parametrize("api", sorted(METHODS))
def test_without_an_authorizer_every_call_is_carried_out_as_it_is(api: str) -> None:
    request = METHODS[api].request()
    admission = admit(api, FREE, request, EMPTY)
    assert admission.request is request and not admission.is_void
    completed(admission, METHODS[api].response())


WHOLE = {
    Operation.ALTER: (
        "AlterPartitionReassignments",
        "CancelReassignments",
        "RollbackPlan",
        "ForgetPlans",
        "ElectLeaders",
        "UnregisterBroker",
        "UpdateFeatures",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "AlterReplicaLogDirs",
    ),
    Operation.DESCRIBE: (
        "ListPartitionReassignments",
        "DescribeQuorum",
        "DescribeAcls",
        "DescribeUserScramCredentials",
        "DescribeLogDirs",
    ),
    Operation.ALTER_CONFIGS: ("AlterClientQuotas",),
    Operation.DESCRIBE_CONFIGS: ("DescribeClientQuotas", "ListConfigResources"),
    Operation.CLUSTER_ACTION: ("AllocateProducerIds",),
}


@pytest.mark.parametrize(("operation", "api"), [(operation, api) for operation, apis in WHOLE.items() for api in apis])
def test_calls_that_need_an_operation_on_the_cluster(operation: Operation, api: str) -> None:
    request = METHODS[api].request()
    assert admit(api, on_cluster(operation), request, EMPTY) == Admission(request)
    with pytest.raises(ApiError) as refused:
        admit(api, rights((TOPIC, "*", Operation.ALL)), request, EMPTY)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_refusal_names_principal_operation_and_resource() -> None:
    with pytest.raises(ApiError, match=r"Request CreateAcls by User:alice on the cluster needs ALTER permission\."):
        admit("CreateAcls", NOTHING, pb.CreateAclsRequest(), EMPTY)


# --- topics ------------------------------------------------------------------------------------------------------------------


def creation(*names: str) -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=name) for name in names], validate_only=True)


def test_refused_creations_follow_the_others() -> None:
    may = rights((TOPIC, "t", Operation.ALL))
    admission = admit("CreateTopics", may, creation("new", "t"), IMAGE)
    assert admission.request == creation("t")
    response = completed(admission, pb.CreateTopicsResponse(topics=[pb.CreatableTopicResult(name="t", error_code=36)]))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 36), ("new", 29)]
    assert (response.topics[1].topic_id, response.topics[1].error_message) == (NO_ID, "Authorization failed.")


def test_a_request_of_which_nothing_is_left_is_not_carried_out() -> None:
    admission = admit("CreateTopics", NOTHING, creation("a", "b"), IMAGE)
    assert admission.is_void
    assert [topic.error_code for topic in completed(admission, pb.CreateTopicsResponse()).topics] == [29, 29]


def test_creating_a_topic_hides_its_configs_without_describe_configs() -> None:
    admission = admit("CreateTopics", on_cluster(Operation.CREATE), creation("new"), IMAGE)
    made = pb.CreatableTopicResult(name="new", num_partitions=3, replication_factor=2, configs=[pb.ConfigEntry(name="x")])
    result = completed(admission, pb.CreateTopicsResponse(topics=[made])).topics[0]
    assert (result.error_code, result.topic_config_error_code) == (0, 29)
    assert (result.num_partitions, result.replication_factor, len(result.configs)) == (-1, -1, 0)


def test_refused_additions_come_first_without_a_text() -> None:
    topics = [pb.CreatePartitionsTopic(name=name, count=2) for name in ("t", "no-such")]
    request = pb.CreatePartitionsRequest(topics=topics)
    admission = admit("CreatePartitions", rights((TOPIC, "t", Operation.ALTER)), request, IMAGE)
    answered = pb.CreatePartitionsResponse(results=[pb.CreatePartitionsTopicResult(name="t")])
    results = completed(admission, answered).results
    assert [(r.name, r.error_code, r.HasField("error_message")) for r in results] == [("no-such", 29, False), ("t", 0, False)]


def deletions(*entries: str | bytes) -> pb.DeleteTopicsRequest:
    return pb.DeleteTopicsRequest(
        topics=[
            pb.DeleteTopicState(name=entry) if isinstance(entry, str) else pb.DeleteTopicState(topic_id=to_text(entry))
            for entry in entries
        ]
    )


def deleted(may: Rights, *entries: str | bytes) -> tuple[Admission, list[tuple[str | None, str, int]]]:
    """The admission, and the refusals as (name or None, id, code)."""
    admission = admit("DeleteTopics", may, deletions(*entries), IMAGE)
    responses = completed(admission, pb.DeleteTopicsResponse()).responses
    return admission, [(r.name if r.HasField("name") else None, r.topic_id, r.error_code) for r in responses]


def test_delete_on_the_cluster_allows_deleting_every_topic() -> None:
    admission, refused = deleted(on_cluster(Operation.DELETE), "t", IDS["u"], "no-such")
    assert (admission.complete, refused) == (None, [])


def test_without_delete_and_describe_existing_topics_are_not_revealed() -> None:
    _, refused = deleted(NOTHING, "t", "no-such", IDS["u"])
    assert refused == [("t", NO_ID, 29), ("no-such", NO_ID, 29), (None, to_text(IDS["u"]), 29)]


def test_with_describe_missing_topics_and_names_of_ids_are_shown() -> None:
    _, refused = deleted(rights((TOPIC, "*", Operation.DESCRIBE)), "t", "no-such", IDS["u"])
    assert refused == [("t", NO_ID, 29), ("no-such", NO_ID, 3), ("u", to_text(IDS["u"]), 29)]


def test_with_delete_a_topic_can_be_named_either_way() -> None:
    admission, refused = deleted(rights((TOPIC, "t", Operation.DELETE)), "t", IDS["t"], IDS["u"])
    assert admission.request == deletions("t", IDS["t"])
    assert refused == [(None, to_text(IDS["u"]), 29)]


def test_with_delete_and_denied_describe_a_name_is_refused() -> None:
    may = rights((TOPIC, "t", Operation.DELETE), (TOPIC, "t", Operation.DESCRIBE, PermissionType.DENY))
    assert deleted(may, "t")[1] == [("t", NO_ID, 29)]


def test_an_uncommitted_id_is_unknown_to_a_caller_without_rights() -> None:
    unknown = bytes([9]) * 16
    admission, refused = deleted(rights((TOPIC, "*", Operation.ALL)), unknown)
    assert admission.is_void
    assert refused == [(None, to_text(unknown), ErrorCode.UNKNOWN_TOPIC_ID)]


def test_deleting_records_needs_delete_on_the_topic() -> None:
    partitions = [pb.DeleteRecordsPartition(partition_index=0, offset=1)]
    request = pb.DeleteRecordsRequest(topics=[pb.DeleteRecordsTopic(name=name, partitions=partitions) for name in ("t", "u")])
    admission = admit("DeleteRecords", rights((TOPIC, "t", Operation.DELETE)), request, IMAGE)
    assert [topic.name for topic in admission.request.topics] == ["t"]
    (refused,) = completed(admission, pb.DeleteRecordsResponse()).topics
    assert (refused.name, refused.partitions[0].low_watermark, refused.partitions[0].error_code) == ("u", -1, 29)


def described(may: Rights, names: list[str] | None) -> tuple[pb.DescribeTopicPartitionsRequest, list[tuple[str, int, int]]]:
    """The admitted request, and the answers as (name, code, operations)."""
    request = pb.DescribeTopicPartitionsRequest()
    if names is not None:
        request.topics.CopyFrom(pb.TopicNames(names=names))
    admission = admit("DescribeTopicPartitions", may, request, IMAGE)
    reduced: pb.DescribeTopicPartitionsRequest = admission.request
    asked = [] if admission.is_void else list(reduced.topics.names) if reduced.HasField("topics") else sorted(IDS)
    found = [pb.DescribedTopic(name=name, error_code=0 if name in IDS else 3) for name in asked]
    topics = completed(admission, pb.DescribeTopicPartitionsResponse(topics=found)).topics
    return reduced, [(topic.name, topic.error_code, topic.topic_authorized_operations) for topic in topics]


def test_described_topics_have_the_callers_operations() -> None:
    assert described(FREE, ["t", "no-such"])[1] == [("t", 0, 3576), ("no-such", 3, 3576)]
    assert described(rights((TOPIC, "*", Operation.ALTER)), ["t"])[1] == [("t", 0, 384)]


def test_named_topics_that_may_not_be_described_are_refused_whether_they_exist_or_not() -> None:
    _, answered = described(rights((TOPIC, "t", Operation.READ)), ["u", "no-such", "t"])
    assert answered == [("t", 0, 264), ("no-such", 29, NOT_ASKED), ("u", 29, NOT_ASKED)]


def test_of_all_topics_only_those_are_described_that_may_be() -> None:
    reduced, answered = described(rights((TOPIC, "t", Operation.READ)), None)
    assert list(reduced.topics.names) == ["t"]
    assert answered == [("t", 0, 264)]
    assert described(NOTHING, None)[1] == []


def behind(may: Rights, names: list[str] | None, topic: str) -> tuple[list[str], str | None, list[str]]:
    """For a request with a cursor: the admitted names, the admitted cursor, and the refused names."""
    request = pb.DescribeTopicPartitionsRequest(cursor=pb.TopicPartitionCursor(topic_name=topic))
    if names is not None:
        request.topics.CopyFrom(pb.TopicNames(names=names))
    admission = admit("DescribeTopicPartitions", may, request, IMAGE)
    reduced: pb.DescribeTopicPartitionsRequest = admission.request
    refused = completed(admission, pb.DescribeTopicPartitionsResponse()).topics
    cursor = reduced.cursor.topic_name if reduced.HasField("cursor") else None
    return list(reduced.topics.names), cursor, [topic.name for topic in refused]


def test_a_cursor_at_a_hidden_or_deleted_topic_shows_the_topics_after_it() -> None:
    may_u, may_t = rights((TOPIC, "u", Operation.READ)), rights((TOPIC, "t", Operation.READ))
    assert behind(may_u, None, "t") == (["u"], None, [])
    assert behind(may_u, None, "gone") == (["u"], None, [])
    assert behind(may_u, None, "u") == (["u"], "u", [])
    assert behind(may_t, None, "u") == ([], None, [])
    assert behind(may_u, ["t", "u"], "t") == (["u"], None, ["t"])
    assert behind(may_u, ["t", "u"], "u") == (["u"], "u", [])
    # The handler refuses a cursor at a topic that is not requested.
    assert behind(may_u, ["t", "u"], "gone") == (["u"], "gone", ["t"])


# --- configs, cluster, producers ---------------------------------------------------------------------------------------------


def test_each_config_resource_needs_its_own_right_and_refusals_come_last() -> None:
    resources = [(2, "u"), (2, "t"), (4, "0"), (32, "g"), (99, "x")]
    request = pb.IncrementalAlterConfigsRequest(
        resources=[pb.AlterConfigsResource(resource_type=kind, resource_name=name) for kind, name in resources]
    )
    admission = admit("IncrementalAlterConfigs", rights((TOPIC, "t", Operation.ALTER_CONFIGS)), request, IMAGE)
    assert [(r.resource_type, r.resource_name) for r in admission.request.resources] == [(2, "t"), (99, "x")]
    refused = completed(admission, pb.IncrementalAlterConfigsResponse()).responses
    assert [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in refused] == [
        (2, "u", 29, "Topic authorization failed."),
        (4, "0", 31, "Cluster authorization failed."),
        (32, "g", 30, "Group authorization failed."),
    ]


def test_alter_configs_implies_describe_configs() -> None:
    resources = [pb.DescribeConfigsResource(resource_type=2, resource_name=name) for name in ("t", "u")]
    request = pb.DescribeConfigsRequest(resources=resources)
    admission = admit("DescribeConfigs", rights((TOPIC, "t", Operation.ALTER_CONFIGS)), request, IMAGE)
    assert [resource.resource_name for resource in admission.request.resources] == ["t"]
    assert [result.error_code for result in completed(admission, pb.DescribeConfigsResponse()).results] == [29]


@pytest.mark.parametrize(
    ("may", "included", "bits"),
    [
        (FREE, True, 8096),
        (FREE, False, NOT_ASKED),
        (NOTHING, True, 0),
        (on_cluster(Operation.ALTER), True, 384),
        (on_cluster(Operation.ALTER_CONFIGS), True, 0),
    ],
)
def test_describing_the_cluster_needs_no_right_and_shows_the_callers_operations(may: Rights, included: bool, bits: int) -> None:
    request = pb.DescribeClusterRequest(include_cluster_authorized_operations=included)
    response = completed(admit("DescribeCluster", may, request, IMAGE), pb.DescribeClusterResponse())
    assert response.cluster_authorized_operations == bits


def test_producer_ids_need_write_on_a_topic_or_idempotent_write() -> None:
    request = pb.InitProducerIdRequest()
    for may in (on_cluster(Operation.IDEMPOTENT_WRITE), rights((TOPIC, "t", Operation.WRITE))):
        assert admit("InitProducerId", may, request, IMAGE) == Admission(request)
    with pytest.raises(ApiError) as refused:
        admit("InitProducerId", on_cluster(Operation.ALTER), request, IMAGE)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_transactional_id_needs_a_right_of_its_own() -> None:
    request = pb.InitProducerIdRequest(transactional_id="x")
    assert admit("InitProducerId", rights((ResourceType.TRANSACTIONAL_ID, "x", Operation.WRITE)), request, IMAGE)
    with pytest.raises(ApiError) as refused:
        admit("InitProducerId", rights((TOPIC, "t", Operation.WRITE)), request, IMAGE)
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

"""Requests about access, and requests for the admission table, with any value in any field: every entry is answered, or the
whole request is refused.
"""

from __future__ import annotations

import random
from typing import Any

import immutables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.controller.engine.state import EMPTY_STATE, Context, ControllerState, Settings
from kraftlab.controller.security import acls, scram
from kraftlab.metadata.acls import Acl, AclsImage, Operation, ResourceType
from kraftlab.metadata.image import MetadataImage, Provenance, TopicImage, TopicsImage
from kraftlab.metadata.invariants import check_image
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.node.api import admit

CONTEXT = Context(1000, random.Random(3), Settings("c", 3000, static={"authorizer.class.name": "StandardAuthorizer"}), 0)
NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 99, 2**31 - 1])
TEXTS = st.sampled_from(["", "*", "t", "kafka-cluster", "User:alice", "User:", ":", "ü\n\0", "127.0.0.1", "x" * 40_000])
KNOWN = frozenset(int(code) for code in ErrorCode)

creations = st.builds(
    pb.AclCreation,
    resource_type=NUMBERS,
    resource_name=TEXTS,
    resource_pattern_type=NUMBERS,
    principal=TEXTS,
    host=TEXTS,
    operation=NUMBERS,
    permission_type=NUMBERS,
)
good_creations = st.builds(
    pb.AclCreation,
    resource_type=st.sampled_from([2, 3]),
    resource_name=st.sampled_from(["*", "t", "u"]),
    resource_pattern_type=st.sampled_from([3, 4]),
    principal=st.sampled_from(["User:alice", "User:bob"]),
    host=st.just("*"),
    operation=st.sampled_from([2, 3, 8]),
    permission_type=st.sampled_from([2, 3]),
)
filters = st.builds(
    pb.DeleteAclsFilter,
    resource_type_filter=NUMBERS,
    resource_name_filter=st.none() | TEXTS,
    pattern_type_filter=NUMBERS,
    principal_filter=st.none() | TEXTS,
    host_filter=st.none() | TEXTS,
    operation=NUMBERS,
    permission_type=NUMBERS,
)


def replayed(state: ControllerState, records: Any) -> ControllerState:
    """The state afterwards, which keeps all invariants and survives a snapshot."""
    after = state.replay(records, 0, Provenance(len(records), 1, 0))
    assert check_image(after.image) == ()
    again = image_from(body for body, _ in ImageSnapshot(after.image).batches())
    assert (again.acls, again.scram) == (after.image.acls, after.image.scram)
    return after


@given(st.lists(good_creations | creations, max_size=6), st.lists(filters, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_request_about_rules_is_answered_entry_by_entry_or_refused(
    made: list[pb.AclCreation], removed: list[pb.DeleteAclsFilter]
) -> None:
    state = EMPTY_STATE
    try:
        created = acls.create(state, pb.CreateAclsRequest(creations=made), CONTEXT)
        assert len(created.response.results) == len(made)
        assert {result.error_code for result in created.response.results} <= KNOWN
        state = replayed(state, created.records)
    except ApiError as refused:
        assert refused.code is ErrorCode.INVALID_REQUEST and refused.message
    try:
        deleted = acls.delete(state, pb.DeleteAclsRequest(filters=removed), CONTEXT)
        assert len(deleted.response.filter_results) == len(removed)
        left = replayed(state, deleted.records).image.acls
        matched = {acl.resource_name for result in deleted.response.filter_results for acl in result.matching_acls}
        assert len(left.ids) == len(state.image.acls.ids) - len(deleted.records)
        assert bool(matched) == bool(deleted.records)
    except ApiError as refused:
        assert refused.code is ErrorCode.INVALID_REQUEST and refused.message


upsertions = st.builds(
    pb.ScramCredentialUpsertion,
    name=TEXTS,
    mechanism=NUMBERS,
    iterations=st.sampled_from([-(2**31), -1, 0, 4095, 4096, 16384, 16385, 2**31 - 1]),
    salt=st.sampled_from([b"", b"salt", b"x" * 2000]),
    salted_password=st.sampled_from([b"", b"salted", b"x" * 2000]),
)
deletions = st.builds(pb.ScramCredentialDeletion, name=TEXTS, mechanism=NUMBERS)


@given(st.lists(st.tuples(st.lists(upsertions, max_size=4), st.lists(deletions, max_size=3)), max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_request_about_credentials_is_answered_once_for_each_user(steps: list[tuple[Any, Any]]) -> None:
    state = EMPTY_STATE
    for put, deleted in steps:
        outcome = scram.alter(state, pb.AlterUserScramCredentialsRequest(upsertions=put, deletions=deleted), CONTEXT)
        users = [result.user for result in outcome.response.results]
        assert sorted(users) == sorted({entry.name for entry in (*put, *deleted)})
        assert {result.error_code for result in outcome.response.results} <= KNOWN
        state = replayed(state, outcome.records)
    described = scram.describe(state, pb.DescribeUserScramCredentialsRequest())
    assert {result.user for result in described.results} == {name for name, _ in state.image.scram}


@pytest.mark.parametrize("text", ["x" * 32_768, "User:" + "x" * 32_768])
def test_texts_longer_than_the_protocols_are_refused(text: str) -> None:
    creation = pb.AclCreation(
        resource_type=2, resource_name=text, resource_pattern_type=3, principal=text, host="*", operation=3, permission_type=3
    )
    (result,) = acls.create(EMPTY_STATE, pb.CreateAclsRequest(creations=[creation]), CONTEXT).response.results
    assert (result.error_code, "32767 are allowed" in result.error_message) == (42, True)


# --- admission ---------------------------------------------------------------------------------------------------------------

IDS = {"t": bytes([1]) * 16, "u": bytes([2]) * 16}
IMAGE = MetadataImage(
    topics=TopicsImage(
        immutables.Map({topic_id: TopicImage(name, topic_id, immutables.Map()) for name, topic_id in IDS.items()}),
        immutables.Map(IDS),
    )
)
NAMES = ["t", "u", "no-such", "", "*"]
ENTRIES = [*NAMES, *(to_text(topic_id) for topic_id in IDS.values()), to_text(bytes([9]) * 16), "not an id"]

rules = st.lists(
    st.builds(
        Acl,
        st.sampled_from([2, 2, 2, 4]),
        st.sampled_from(["t", "u", "*", "kafka-cluster"]),
        st.sampled_from([3, 4]),
        st.just("User:alice"),
        st.just("*"),
        st.sampled_from([2, 5, 6, 7, 8, 10, 11]),
        st.sampled_from([2, 3, 3]),
    ),
    max_size=6,
    unique=True,
)


def rights(made: list[Acl]) -> Rights:
    image = AclsImage().after({number.to_bytes(16, "big"): rule for number, rule in enumerate(made)})
    return Authorizer(AccessSettings(is_enabled=True)).rights(image, "User:alice", "h")


@given(rules, st.lists(st.sampled_from(NAMES), max_size=5))
@settings(max_examples=60, deadline=None)
def test_every_name_of_a_request_is_either_carried_out_or_refused(made: list[Acl], names: list[str]) -> None:
    requests: list[tuple[str, Any, str]] = [
        ("CreateTopics", pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=n) for n in names]), "topics"),
        ("CreatePartitions", pb.CreatePartitionsRequest(topics=[pb.CreatePartitionsTopic(name=n) for n in names]), "results"),
        ("DeleteRecords", pb.DeleteRecordsRequest(topics=[pb.DeleteRecordsTopic(name=n) for n in names]), "topics"),
    ]
    may = rights(made)
    for api, request, answers in requests:
        before = request.SerializeToString()
        admission = admit(api, may, request, IMAGE)
        assert request.SerializeToString() == before
        kept = {topic.name for topic in admission.request.topics}
        response = _empty_response(api)
        if admission.complete is not None:
            admission.complete(response)
        refused = {topic.name for topic in getattr(response, answers)}
        assert kept | refused == set(names) and not kept & refused
        assert admission.is_void == (bool(names) and not kept)


def _empty_response(api: str) -> Any:
    return getattr(pb, f"{api}Response")()


@given(rules, st.lists(st.tuples(st.sampled_from([None, *ENTRIES]), st.sampled_from([None, *ENTRIES])), max_size=5))
@settings(max_examples=60, deadline=None)
def test_every_topic_to_delete_is_either_deleted_or_refused_and_none_without_the_right(
    made: list[Acl], named: list[tuple[str | None, str | None]]
) -> None:
    request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in named])
    may = rights(made)
    admission = admit("DeleteTopics", may, request, IMAGE)
    response = pb.DeleteTopicsResponse()
    if admission.complete is not None:
        admission.complete(response)
    assert len(admission.request.topics) + len(response.responses) == len(named)
    is_free = may.allow_on_cluster(Operation.DELETE)
    names = {topic_id: name for name, topic_id in IDS.items()}
    for entry in admission.request.topics:
        has_id = entry.HasField("topic_id") and entry.topic_id != "A" * 22
        if is_free or entry.HasField("name") == has_id:
            continue
        name = entry.name if entry.HasField("name") else next(n for i, n in names.items() if to_text(i) == entry.topic_id)
        assert may.allow(Operation.DELETE, ResourceType.TOPIC, name)

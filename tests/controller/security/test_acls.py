"""ACLs: create, describe and delete."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine.state import EMPTY_STATE, Context, ControllerState, Settings
from kraftlab.controller.security.acls import AclFilter, create, delete, describe
from kraftlab.metadata.acls import CLUSTER_NAME, Acl, Operation, PatternType, PermissionType, ResourceType
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.records import AccessControlEntry, AnyRecord
from kraftlab.metadata.snapshot import ImageSnapshot, image_from

SETTINGS = Settings("c", 3000, static={"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})
WITHOUT = Settings("c", 3000)
ANYTHING = pb.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)


def context(settings: Settings = SETTINGS) -> Context:
    return Context(1000, random.Random(1), settings, 0)


def creation(
    name: str = "t",
    *,
    resource_type: int = ResourceType.TOPIC,
    pattern: int = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = Operation.READ,
    permission: int = PermissionType.ALLOW,
) -> pb.AclCreation:
    return pb.AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def after(state: ControllerState, records: Sequence[AnyRecord]) -> ControllerState:
    return state.replay(records, 0, Provenance(len(records), 1, 0))


def created(*creations: pb.AclCreation, state: ControllerState = EMPTY_STATE) -> tuple[ControllerState, list[int], int]:
    """(the state afterwards, error codes, number of records)."""
    outcome = create(state, pb.CreateAclsRequest(creations=creations), context())
    return after(state, outcome.records), [result.error_code for result in outcome.response.results], len(outcome.records)


def names(response: pb.DescribeAclsResponse) -> list[str]:
    return [resource.resource_name for resource in response.resources]


def test_a_rule_is_kept_and_described() -> None:
    state, codes, _ = created(creation())
    assert codes == [0]
    response = describe(state, ANYTHING, SETTINGS)
    (resource,) = response.resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
    assert resource.acls[0] == pb.AclDescription(principal="User:alice", host="*", operation=3, permission_type=3)
    assert response.header.HasField("error_message")


def test_the_same_rule_again_is_no_error_and_no_record() -> None:
    state, _, _ = created(creation())
    assert created(creation(), creation(), state=state)[1:] == ([0, 0], 0)
    assert created(creation(), creation())[1:] == ([0, 0], 1)


def test_a_rule_that_is_made_while_another_request_is_under_way_is_seen_in_the_newest_state_only() -> None:
    request = pb.CreateAclsRequest(creations=[creation()])
    first = create(EMPTY_STATE, request, context())
    assert create(EMPTY_STATE, request, context()).records == first.records
    assert create(after(EMPTY_STATE, first.records), request, context()).records == []


def test_good_and_bad_rules_of_a_request_do_not_touch_each_other() -> None:
    state, codes, _ = created(creation("x"), creation(""), creation("y"))
    assert codes == [0, 42, 0]
    assert names(describe(state, ANYTHING, SETTINGS)) == ["x", "y"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (creation(""), "Invalid empty resource name"),
        (creation("other", resource_type=ResourceType.CLUSTER), "only valid name for the CLUSTER resource is kafka-cluster"),
        (creation(principal="alice"), "Could not parse principal from `alice`"),
        (creation(resource_type=99), "Invalid resourceType 99: it is unknown"),
        (creation(resource_type=ResourceType.ANY), r"Invalid resourceType ANY \(1\): it is valid in filters only"),
        (creation(pattern=PatternType.MATCH), r"Invalid patternType MATCH \(2\)"),
        (creation(pattern=9), "Invalid patternType 9"),
        (creation(operation=Operation.ANY), r"Invalid operation ANY \(1\)"),
        (creation(operation=77), "Invalid operation 77"),
        (creation(permission=PermissionType.ANY), r"Invalid permissionType ANY \(1\)"),
    ],
)
def test_an_invalid_acl_is_refused(wrong: pb.AclCreation, reason: str) -> None:
    outcome = create(EMPTY_STATE, pb.CreateAclsRequest(creations=[wrong]), context())
    (result,) = outcome.response.results
    assert (result.error_code, list(outcome.records)) == (42, [])
    with pytest.raises(ApiError, match=reason):
        raise ApiError(ErrorCode(result.error_code), result.error_message)


@pytest.mark.parametrize(
    "odd",
    [
        creation(principal="User:"),
        creation(principal=":alice"),
        creation(host="not an address"),
        creation("*", pattern=PatternType.PREFIXED),
        creation(CLUSTER_NAME, resource_type=ResourceType.CLUSTER, pattern=PatternType.PREFIXED),
    ],
)
def test_unusual_valid_acls_are_kept(odd: pb.AclCreation) -> None:
    assert created(odd)[1:] == ([0], 1)


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_a_zero_refuses_the_whole_request(field: str) -> None:
    wrong = creation("x")
    setattr(wrong, field, 0)
    with pytest.raises(ApiError, match=f"{field} is 0") as refused:
        created(creation("y"), wrong)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_more_rules_than_a_batch_holds_are_refused_together() -> None:
    with pytest.raises(ApiError, match="10001 metadata records") as refused:
        created(*(creation(f"t{number}") for number in range(10_001)))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_without_an_authorizer_there_are_no_rules() -> None:
    made = create(EMPTY_STATE, pb.CreateAclsRequest(creations=[creation(), creation("u")]), context(WITHOUT))
    deleted = delete(EMPTY_STATE, pb.DeleteAclsRequest(filters=[pb.DeleteAclsFilter()]), context(WITHOUT))
    for result in (*made.response.results, *deleted.response.filter_results):
        assert (result.error_code, result.error_message) == (54, "No Authorizer is configured.")
    assert (list(made.records), list(deleted.records)) == ([], [])
    with pytest.raises(ApiError, match="No Authorizer is configured on the broker") as refused:
        describe(EMPTY_STATE, ANYTHING, WITHOUT)
    assert refused.value.code is ErrorCode.SECURITY_DISABLED


# --- filters -----------------------------------------------------------------------------------------------------------------

RULES = (
    creation("orders"),
    creation("ord", pattern=PatternType.PREFIXED, operation=Operation.WRITE),
    creation("*", principal="User:bob", operation=Operation.DESCRIBE, permission=PermissionType.DENY),
    creation(CLUSTER_NAME, resource_type=ResourceType.CLUSTER, operation=Operation.ALTER),
    creation("g1", resource_type=ResourceType.GROUP, principal="User:bob", host="1.2.3.4"),
    creation("pay", principal="User:*", operation=Operation.ALL),
)


def wanted(
    *,
    resource_type: int = 1,
    name: str | None = None,
    pattern: int = 1,
    principal: str | None = None,
    host: str | None = None,
    operation: int = 1,
    permission: int = 1,
) -> pb.DeleteAclsFilter:
    return pb.DeleteAclsFilter(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )


def removed(*filters: pb.DeleteAclsFilter) -> tuple[list[list[str]], list[str]]:
    """(names that each filter matched, names that are left)."""
    state, _, _ = created(*RULES)
    outcome = delete(state, pb.DeleteAclsRequest(filters=filters), context())
    matched = [[acl.resource_name for acl in result.matching_acls] for result in outcome.response.filter_results]
    return matched, names(describe(after(state, outcome.records), ANYTHING, SETTINGS))


def test_match_finds_every_rule_that_concerns_a_resource() -> None:
    matched, left = removed(wanted(resource_type=2, name="orders", pattern=PatternType.MATCH))
    assert matched == [["*", "ord", "orders"]]
    assert left == ["pay", "g1", CLUSTER_NAME]


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (wanted(), ["*", "ord", "orders", "pay", "g1", CLUSTER_NAME]),
        (wanted(name="orders"), ["orders"]),
        (wanted(name="ord"), ["ord"]),
        (wanted(name="ord", pattern=PatternType.LITERAL), []),
        (wanted(pattern=PatternType.PREFIXED), ["ord"]),
        (wanted(principal="User:bob"), ["*", "g1"]),
        (wanted(principal=""), []),
        (wanted(host="1.2.3.4"), ["g1"]),
        (wanted(operation=Operation.ALL), ["pay"]),
        (wanted(permission=PermissionType.DENY), ["*"]),
    ],
)
def test_a_filter_finds_matching_acls(one: pb.DeleteAclsFilter, found: list[str]) -> None:
    assert removed(one)[0] == [found]


def test_an_acl_is_in_the_answer_of_each_filter_that_matches_it() -> None:
    matched, left = removed(wanted(principal="User:bob"), wanted(name="g1"), wanted(name="g1"))
    assert matched == [["*", "g1"], ["g1"], ["g1"]]
    assert "g1" not in left


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (wanted(resource_type=99), "resource type 99"),
        (wanted(pattern=9), "pattern type 9"),
        (wanted(operation=99), "operation 99"),
        (wanted(permission=9), "permission type 9"),
    ],
)
def test_a_filter_with_an_unknown_number_removes_nothing_and_other_filters_work(one: pb.DeleteAclsFilter, message: str) -> None:
    state, _, _ = created(*RULES)
    outcome = delete(state, pb.DeleteAclsRequest(filters=[one, wanted(name="g1")]), context())
    bad, good = outcome.response.filter_results
    assert (bad.error_code, message in bad.error_message, len(bad.matching_acls)) == (42, True, 0)
    assert ([acl.resource_name for acl in good.matching_acls], len(outcome.records)) == (["g1"], 1)


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_describing_acls_with_an_unknown_number_finds_none(field: str) -> None:
    state, _, _ = created(*RULES)
    request = pb.DescribeAclsRequest()
    request.CopyFrom(ANYTHING)
    setattr(request, field, 99)
    assert names(describe(state, request, SETTINGS)) == []


def test_a_zero_in_one_filter_removes_nothing_at_all() -> None:
    with pytest.raises(ApiError, match="resource_type_filter is 0"):
        removed(wanted(), wanted(resource_type=0))
    with pytest.raises(ApiError, match="operation is 0"):
        describe(EMPTY_STATE, pb.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1), SETTINGS)


@given(
    st.sampled_from([None, "a", "ab", "*", "b"]),
    st.sampled_from(["a", "ab", "abc", "*", "b"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
def test_match_finds_the_acls_that_are_evaluated(name: str | None, rule_name: str, pattern: PatternType) -> None:
    acl = Acl(2, rule_name, pattern, "User:a", "*", 3, 3)
    concerns = name is None or (
        name.startswith(rule_name) if pattern is PatternType.PREFIXED else rule_name == "*" or rule_name == name
    )
    assert AclFilter(1, name, PatternType.MATCH, None, None, 1, 1).matches(acl) == concerns


def test_rules_survive_a_snapshot() -> None:
    state, _, _ = created(*RULES)
    again = image_from(body for body, _ in ImageSnapshot(state.image).batches())
    assert again.acls == state.image.acls
    outcome = create(EMPTY_STATE, pb.CreateAclsRequest(creations=RULES), context())
    assert all(isinstance(record, AccessControlEntry) for record in outcome.records)

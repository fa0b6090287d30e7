"""ACLs (KIP-11, KIP-290, KIP-801): CreateAcls, DeleteAcls, DescribeAcls.

An ACL that exists is created again without a record, and duplicates in a request become one record. ACLs are compared with the
newest state; nothing is kept beside it. The protocol's number 0 ("unknown") refuses the whole request. Without an authorizer
no ACLs are kept.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, TypeVar

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.config.access import AUTHORIZER
from kraftlab.metadata.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclsImage,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    acl_record,
)
from kraftlab.metadata.records import AnyRecord, RemoveAccessControlEntry

from ..engine.state import Context, ControllerState, Outcome, Settings, check_record_count, fresh_uuid

NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
UNKNOWN = 0
TEXT_LENGTH_MAX = 32767
"""Longest text in Kafka's protocol."""

Number = TypeVar("Number", bound=enum.IntEnum)
Response = TypeVar("Response")


def has_authorizer(settings: Settings) -> bool:
    return bool(settings.static.get(AUTHORIZER, "").strip())


def create(
    state: ControllerState, request: admin_pb2.CreateAclsRequest, context: Context
) -> Outcome[admin_pb2.CreateAclsResponse]:
    """Create ACLs, each independently. ApiError INVALID_REQUEST for a 0 among the numbers, POLICY_VIOLATION for too many ACLs."""
    response = admin_pb2.CreateAclsResponse()
    if not has_authorizer(context.settings):
        return _refused_each(response, response.results, len(request.creations))
    for creation in request.creations:
        _check_known(
            resource_type=creation.resource_type,
            resource_pattern_type=creation.resource_pattern_type,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
    made: dict[Acl, Uuid] = {}
    acls = state.image.acls
    for creation in request.creations:
        result = response.results.add(error_message="")
        try:
            acl = _new_acl(creation)
        except ApiError as error:
            set_error(result, error)
            continue
        if acl not in acls.ids and acl not in made:
            made[acl] = fresh_uuid(context.random, acls.by_id)
    records = [acl_record(acl_id, acl) for acl, acl_id in made.items()]
    check_record_count(records)
    return Outcome(records, response)


def _refused_each(response: Response, results: Any, count: int) -> Outcome[Response]:
    """Answer every entry with SECURITY_DISABLED."""
    refused = ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    for _ in range(count):
        set_error(results.add(), refused)
    return Outcome([], response)


def _check_known(**numbers: int) -> None:
    for field, number in numbers.items():
        if number == UNKNOWN:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{field} is 0, which is not a valid value; nothing was changed.")


def _new_acl(creation: admin_pb2.AclCreation) -> Acl:
    """The ACL of a request. ApiError INVALID_REQUEST if it is not valid."""
    if creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    for what, text in (("name", creation.resource_name), ("principal", creation.principal), ("host", creation.host)):
        if len(text) > TEXT_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The {what} has {len(text)} characters; {TEXT_LENGTH_MAX} are allowed.")
    if not creation.resource_name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    resource_type = _one_of(ResourceType, creation.resource_type, "resourceType")
    pattern_type = _one_of(PatternType, creation.resource_pattern_type, "patternType", PatternType.MATCH)
    operation = _one_of(Operation, creation.operation, "operation")
    permission_type = _one_of(PermissionType, creation.permission_type, "permissionType")
    if ":" not in creation.principal:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type from the "
            "principal name)",
        )
    return Acl(resource_type, creation.resource_name, pattern_type, creation.principal, creation.host, operation, permission_type)


def _one_of(numbers: type[Number], value: int, what: str, *filters: Number) -> Number:
    """The enum member of a number. ANY, and `filters`, are valid in filters only."""
    known = {int(number): number for number in numbers}
    found = known.get(value)
    if found is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid {what} {value}: it is unknown")
    if found.name == "ANY" or found in filters:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid {what} {found.name} ({value}): it is valid in filters only")
    return found


# --- filters -----------------------------------------------------------------------------------------------------------------


class AclFilter(NamedTuple):
    """A filter of ACLs. None matches every text, and 1 (ANY) every number. Unknown numbers match nothing."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
        )

    def unknown_number(self) -> str | None:
        """The first unknown number, with its field; None if all are known."""
        requested = (
            ("resource type", ResourceType, self.resource_type),
            ("pattern type", PatternType, self.pattern_type),
            ("operation", Operation, self.operation),
            ("permission type", PermissionType, self.permission_type),
        )
        return next((f"{what} {number}" for what, numbers, number in requested if number not in set(numbers)), None)

    def _matches_name(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type == PatternType.MATCH:
            if name is None:
                return True
            if acl.pattern_type == PatternType.PREFIXED:
                return name.startswith(acl.resource_name)
            return acl.resource_name in (name, WILDCARD)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and name in (None, acl.resource_name)


def _filter(request: admin_pb2.DescribeAclsRequest | admin_pb2.DeleteAclsFilter) -> AclFilter:
    """ApiError INVALID_REQUEST for a 0 among the numbers."""
    _check_known(
        resource_type_filter=request.resource_type_filter,
        pattern_type_filter=request.pattern_type_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter if request.HasField("resource_name_filter") else None,
        request.pattern_type_filter,
        request.principal_filter if request.HasField("principal_filter") else None,
        request.host_filter if request.HasField("host_filter") else None,
        request.operation,
        request.permission_type,
    )


def _matching(acls: AclsImage, wanted: AclFilter) -> list[Acl]:
    """Matching ACLs, sorted."""
    return sorted(acl for acl in acls.ids if wanted.matches(acl))


def delete(
    state: ControllerState, request: admin_pb2.DeleteAclsRequest, context: Context
) -> Outcome[admin_pb2.DeleteAclsResponse]:
    """Remove the matching ACLs. Each filter is answered with all its matches, or with its error. ApiError as `create`."""
    response = admin_pb2.DeleteAclsResponse()
    if not has_authorizer(context.settings):
        return _refused_each(response, response.filter_results, len(request.filters))
    acls = state.image.acls
    removed: dict[Uuid, None] = {}
    for wanted in [_filter(item) for item in request.filters]:
        result = response.filter_results.add()
        unknown = wanted.unknown_number()
        if unknown is not None:
            set_error(result, ApiError(ErrorCode.INVALID_REQUEST, f"The filter has {unknown}, which is unknown"))
            continue
        for acl in _matching(acls, wanted):
            removed[acls.ids[acl]] = None
            result.matching_acls.add(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
    records: list[AnyRecord] = [RemoveAccessControlEntry(0, acl_id) for acl_id in removed]
    check_record_count(records)
    return Outcome(records, response)


def describe(
    state: ControllerState, request: admin_pb2.DescribeAclsRequest, settings: Settings
) -> admin_pb2.DescribeAclsResponse:
    """Matching ACLs, by resource. ApiError SECURITY_DISABLED, INVALID_REQUEST."""
    if not has_authorizer(settings):
        raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER_ON_BROKER)
    response = admin_pb2.DescribeAclsResponse(header=admin_pb2.ResponseHeader(error_message=""))
    resource: admin_pb2.DescribeAclsResource | None = None
    for acl in _matching(state.image.acls, _filter(request)):
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        if resource is None or pattern != (resource.resource_type, resource.resource_name, resource.pattern_type):
            resource = response.resources.add(resource_type=pattern[0], resource_name=pattern[1], pattern_type=pattern[2])
        resource.acls.add(principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type)
    return response

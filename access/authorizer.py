"""Rights of callers: ACLs, super users, and the default without ACLs.

A super user may do everything. Any other caller may do what the ACLs allow. A resource without ACLs is open to nobody, or to
everybody if `allow.everyone.if.no.acl.found` is true. A node that has not loaded its metadata has no ACLs: it serves super
users and refuses others with a code that makes clients retry. Without an authorizer everybody may do everything.
"""

from __future__ import annotations

import msgspec

from kraftlab.common.audit import AuditLog
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.acls import CLUSTER_NAME, AclsImage, Operation, ResourceType

from .rules import allows_any, verdict

OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""Operations that exist for each resource type. Authorized operations in responses are a subset of them."""

_BITS = {resource_type: sum(1 << operation for operation in found) for resource_type, found in OPERATIONS.items()}


class AccessSettings(msgspec.Struct, frozen=True):
    """A node's configuration of access. `super_users` are principals, for example `User:admin`."""

    is_enabled: bool = False
    super_users: frozenset[str] = frozenset()
    allows_if_no_rules: bool = False
    """True if everybody may do everything on a resource without ACLs (`allow.everyone.if.no.acl.found`)."""


class Rights:
    """Rights of one caller, by the ACLs of one image. `acls` None: the caller may do everything."""

    def __init__(
        self, principal: str, host: str, settings: AccessSettings, acls: AclsImage | None, audit: AuditLog | None = None
    ) -> None:
        self._audit = audit or AuditLog()
        self.principal = principal
        self.host = host
        self._settings = settings
        self._acls = acls

    @property
    def are_unlimited(self) -> bool:
        return self._acls is None

    def allow(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return True if the operation on that resource is allowed. A refusal goes to the audit log."""
        is_allowed = self.may(operation, resource_type, name)
        if not is_allowed:
            self._audit.refused(self.principal, self.host, operation.name, f"{resource_type.name} {name}")
        return is_allowed

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """As `allow`, for questions whose answer refuses nothing by itself: a list shows less."""
        if self._acls is None:
            return True
        found = verdict(self._acls, self.principal, self.host, resource_type, name)
        return found.allows(operation) if found.has_rules else self._settings.allows_if_no_rules

    def allow_on_cluster(self, operation: Operation) -> bool:
        return self.allow(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_on_cluster(self, operation: Operation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allow_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return True if the operation is allowed on at least one resource name of that type, whether or not the resource
        exists.
        """
        return self._acls is None or allows_any(
            self._acls, self.principal, self.host, operation, resource_type, if_no_rules=self._settings.allows_if_no_rules
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Operations that are allowed on a resource: one bit per operation number."""
        supported = _BITS[resource_type]
        if self._acls is None:
            return supported
        found = verdict(self._acls, self.principal, self.host, resource_type, name)
        if not found.has_rules:
            return supported if self._settings.allows_if_no_rules else 0
        return found.operations & supported


class Authorizer:
    """Makes the rights of callers."""

    def __init__(self, settings: AccessSettings) -> None:
        self.settings = settings
        self.audit = AuditLog()

    def rights(self, acls: AclsImage | None, principal: str, host: str) -> Rights:
        """Rights of a caller by these ACLs. `acls` None: the node has not loaded its metadata, and the call fails with
        BROKER_NOT_AVAILABLE unless the caller is a super user.
        """
        if not self.settings.is_enabled or principal in self.settings.super_users:
            return Rights(principal, host, self.settings, None, self.audit)
        if acls is None:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, "This node has not loaded the ACLs yet; try again, or ask another node."
            )
        return Rights(principal, host, self.settings, acls, self.audit)

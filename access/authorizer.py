"""Who may do what: the access rules with the settings around them.

Super users may do everything, rules or not. Everybody else may do what the rules allow; what no rule concerns is allowed to
nobody, or to everybody if the settings say so. Until a node has its first complete metadata it knows no rules: then it answers
super users only, and others are told to try again. Without an authorizer everybody may do everything.
"""

from __future__ import annotations

import msgspec

from kraftlab.metadata.acls import CLUSTER_NAME, AclsImage, Operation, ResourceType
from kraftlab.metadata.errors import ApiError, ErrorCode

from .rules import allows_any, verdict

ANONYMOUS = "User:ANONYMOUS"
"""Who gives no name."""

NOT_ASKED = -(2**31)
"""Stands for a set of operations that was not asked for, or is none of the asker's business."""

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
"""What can be done to a resource of each type; what is told about authorized operations is about these."""

_BITS = {resource_type: sum(1 << operation for operation in found) for resource_type, found in OPERATIONS.items()}


class AccessSettings(msgspec.Struct, frozen=True):
    """What a node's configuration says about access. `super_users` are principals, for example `User:admin`."""

    is_enabled: bool = False
    super_users: frozenset[str] = frozenset()
    allows_unconcerned: bool = False
    """Whether everybody may do what no rule concerns (`allow.everyone.if.no.acl.found`)."""


class Rights:
    """What one caller may do, by the rules of one moment. Without rules: everything."""

    def __init__(self, principal: str, host: str, settings: AccessSettings, acls: AclsImage | None) -> None:
        self.principal = principal
        self.host = host
        self._settings = settings
        self._acls = acls

    @property
    def are_unlimited(self) -> bool:
        return self._acls is None

    def allow(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed on that resource."""
        if self._acls is None:
            return True
        found = verdict(self._acls, self.principal, self.host, resource_type, name)
        return found.allows(operation) if found.concerned else self._settings.allows_unconcerned

    def allow_on_cluster(self, operation: Operation) -> bool:
        return self.allow(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allow_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of that type, be there one or not."""
        return self._acls is None or allows_any(
            self._acls, self.principal, self.host, operation, resource_type, if_unconcerned=self._settings.allows_unconcerned
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Those that are allowed on a resource, as bits by number."""
        supported = _BITS[resource_type]
        if self._acls is None:
            return supported
        found = verdict(self._acls, self.principal, self.host, resource_type, name)
        if not found.concerned:
            return supported if self._settings.allows_unconcerned else 0
        return found.operations & supported


class Authorizer:
    """Gives callers their rights."""

    def __init__(self, settings: AccessSettings) -> None:
        self.settings = settings

    def rights(self, acls: AclsImage | None, principal: str, host: str) -> Rights:
        """Of a caller, by these rules. None: this node has not loaded its metadata; BROKER_NOT_AVAILABLE but for super users."""
        if not self.settings.is_enabled or principal in self.settings.super_users:
            return Rights(principal, host, self.settings, None)
        if acls is None:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, "This node has not loaded the access rules yet; try again, or ask another one."
            )
        return Rights(principal, host, self.settings, acls)

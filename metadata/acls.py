"""ACLs: their enums, their part of the image, and their records (KIP-11, KIP-290, KIP-801).

An ACL allows or denies an operation on a resource to a principal at a host. It has a random id, which removes it. No two ACLs
of an image are equal. `access.rules` evaluates them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import immutables
import msgspec

from kraftlab.common.uuids import Uuid, to_text

from .maps import newest, written
from .records import AccessControlEntry, RemoveAccessControlEntry
from .replay_error import ReplayError

WILDCARD = "*"
"""As a literal name: every resource of the type. As a host: every host."""
CLUSTER_NAME = "kafka-cluster"
"""Name of the only resource of type CLUSTER."""


class ResourceType(enum.IntEnum):
    """The protocol's numbers. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """Kinds of resource patterns. ANY and MATCH are for filters only: MATCH finds every ACL that matches a resource."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """Operations. ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(enum.IntEnum):
    """ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL. `principal` is `Type:name`, for example `User:alice`. Sorts by resource first."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


Permissions = tuple[int, int]
"""(allowed, denied) operations of one pattern, principal and host: one bit per operation number."""
_Pattern = tuple[int, int, str]
_Holder = tuple[int, int, str, str, str]


class AclsImage(msgspec.Struct, frozen=True):
    """All ACLs by id, and the id of each. The other maps arrange the same ACLs for evaluation, and are updated at the same
    cost.
    """

    by_id: immutables.Map[Uuid, Acl] = immutables.Map()
    ids: immutables.Map[Acl, Uuid] = immutables.Map()
    permissions: immutables.Map[_Holder, Permissions] = immutables.Map()
    """By resource type, pattern type, resource name, principal and host."""
    patterns: immutables.Map[_Pattern, int] = immutables.Map()
    """Number of ACLs by resource type, pattern type and resource name."""
    prefix_lengths: immutables.Map[int, immutables.Map[int, int]] = immutables.Map()
    """By resource type: number of prefix ACLs by the length of their prefixes."""

    def after(self, changed: Mapping[Uuid, Acl | None]) -> AclsImage:
        """The image with ACLs set, or removed where they have None."""
        removed = [self.by_id[acl_id] for acl_id in changed if acl_id in self.by_id]
        added = {acl: acl_id for acl_id, acl in changed.items() if acl is not None}
        if not removed and not added:
            return self
        ids: dict[Acl, Uuid | None] = dict.fromkeys(removed)
        ids.update(added)
        arranged = _Arranging(self)
        for acl in removed:
            arranged.count(acl, -1)
        for acl in added:
            arranged.count(acl, 1)
        return AclsImage(
            written(self.by_id, changed),
            written(self.ids, ids),
            written(self.permissions, arranged.permissions),
            written(self.patterns, arranged.patterns),
            written(self.prefix_lengths, arranged.lengths),
        )


class _Arranging:
    """Changes of the arranged maps of `image`."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.permissions: dict[_Holder, Permissions | None] = {}
        self.patterns: dict[_Pattern, int | None] = {}
        self.lengths: dict[int, immutables.Map[int, int] | None] = {}

    def count(self, acl: Acl, change: int) -> None:
        """Add (1) or remove (-1) an ACL. No ACL exists twice, so at most one ACL sets a bit, and its removal clears the bit."""
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        holder = (*pattern, acl.principal, acl.host)
        allowed, denied = newest(self.image.permissions, self.permissions, holder) or (0, 0)
        if acl.permission_type == PermissionType.DENY:
            denied ^= 1 << acl.operation
        else:
            allowed ^= 1 << acl.operation
        self.permissions[holder] = (allowed, denied) if allowed or denied else None
        self.patterns[pattern] = (newest(self.image.patterns, self.patterns, pattern) or 0) + change or None
        if acl.pattern_type == PatternType.PREFIXED:
            kind, length = acl.resource_type, len(acl.resource_name)
            lengths = newest(self.image.prefix_lengths, self.lengths, kind) or immutables.Map()
            self.lengths[kind] = written(lengths, {length: lengths.get(length, 0) + change or None}) or None


class AclsDelta:
    """ACLs while records are replayed on `image`."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changed: dict[Uuid, Acl | None] = {}
        self._ids: dict[Acl, Uuid | None] = {}

    def add(self, record: AccessControlEntry) -> None:
        """ReplayError if the id is taken, or if an equal ACL exists."""
        if self._get(record.acl_id) is not None:
            raise ReplayError("an ACL with this id exists")
        acl = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        equal = newest(self.image.ids, self._ids, acl)
        if equal is not None:
            raise ReplayError(f"the ACL with id {to_text(equal)} is equal")
        self.changed[record.acl_id] = acl
        self._ids[acl] = record.acl_id

    def remove(self, record: RemoveAccessControlEntry) -> None:
        """ReplayError if the ACL does not exist."""
        acl = self._get(record.acl_id)
        if acl is None:
            raise ReplayError(f"there is no ACL with id {to_text(record.acl_id)}")
        self.changed[record.acl_id] = None
        self._ids[acl] = None

    def _get(self, acl_id: Uuid) -> Acl | None:
        return newest(self.image.by_id, self.changed, acl_id)


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntry:
    """The record of this ACL."""
    return AccessControlEntry(0, acl_id, *acl)


def acl_records(acls: AclsImage) -> Iterator[AccessControlEntry]:
    """The snapshot's records, sorted by ACL."""
    for acl, acl_id in sorted(acls.ids.items()):
        yield acl_record(acl_id, acl)

"""Access rules (ACLs): their vocabulary, their part of the image, and its records (KIP-11, KIP-290, KIP-801).

A rule says whether a principal, from a host, may or must not do an operation on a resource. It has a random id, by which it is
removed; no two rules of an image say the same. What the rules mean together is worked out elsewhere, from this.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import immutables
import msgspec

from .maps import written
from .records import AccessControlEntry, RemoveAccessControlEntry
from .replay_error import ReplayError
from .uuids import Uuid, to_text

WILDCARD = "*"
"""As a literal name it means every resource of the type, as a host every host."""
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""


class ResourceType(enum.IntEnum):
    """Numbers as in the protocol; ANY only in filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How a rule names resources. ANY and MATCH only in filters: MATCH finds every rule that concerns a resource."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """What is done. ANY only in filters."""

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
    """ANY only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One rule. `principal` is `Type:name`, for example `User:alice`. Sorts by resource first."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclsImage(msgspec.Struct, frozen=True):
    """All rules by id, and the id of each."""

    by_id: immutables.Map[Uuid, Acl] = immutables.Map()
    ids: immutables.Map[Acl, Uuid] = immutables.Map()

    def after(self, changed: Mapping[Uuid, Acl | None]) -> AclsImage:
        """With rules set, or removed where there is None."""
        if not changed:
            return self
        ids: dict[Acl, Uuid | None] = {}
        for acl_id, acl in changed.items():
            before = self.by_id.get(acl_id)
            if acl is None and before is not None:
                ids[before] = None
        ids.update((acl, acl_id) for acl_id, acl in changed.items() if acl is not None)
        return AclsImage(written(self.by_id, changed), written(self.ids, ids))


class AclsDelta:
    """Rules while records are replayed on `image`."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changed: dict[Uuid, Acl | None] = {}

    def add(self, record: AccessControlEntry) -> None:
        """ReplayError if the id is taken."""
        if self._get(record.acl_id) is not None:
            raise ReplayError("an access rule of this id exists")
        self.changed[record.acl_id] = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def remove(self, record: RemoveAccessControlEntry) -> None:
        """ReplayError if there is no such rule."""
        if self._get(record.acl_id) is None:
            raise ReplayError(f"there is no access rule with id {to_text(record.acl_id)}")
        self.changed[record.acl_id] = None

    def _get(self, acl_id: Uuid) -> Acl | None:
        return self.changed[acl_id] if acl_id in self.changed else self.image.by_id.get(acl_id)


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntry:
    """The record that makes this rule."""
    return AccessControlEntry(0, acl_id, *acl)


def acl_records(acls: AclsImage) -> Iterator[AccessControlEntry]:
    """What a snapshot says, sorted by what the rules say."""
    for acl, acl_id in sorted(acls.ids.items()):
        yield acl_record(acl_id, acl)

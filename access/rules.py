"""Evaluation of ACLs (KIP-11, KIP-290, KIP-801): the matching kernel.

Theory of operation. An ACL matches a resource if its pattern is the resource's name, `*`, or a prefix of the name. Of the
matching ACLs, those count whose principal is the caller's or `User:*` and whose host is the caller's or `*`. One DENY wins
over any number of ALLOW; without an ALLOW the operation is not allowed. ALLOW of READ, WRITE, DELETE or ALTER implies
DESCRIBE, ALLOW of ALTER_CONFIGS implies DESCRIBE_CONFIGS, and ALLOW of ALL implies everything. DENY implies nothing but
itself, except DENY of ALL.

The image keeps the ACLs arranged as bits by pattern, principal and host (`AclsImage.permissions`). One decision costs four
look-ups for the literal name, four for `*`, and four per distinct prefix length of the resource type. The number of ACLs does
not matter, and a change of ACLs rebuilds nothing. Only `allows_any` walks all ACLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.metadata.acls import WILDCARD, AclsImage, Operation, PatternType

ANYBODY = "User:*"
"""Principal of ACLs that apply to everybody."""

_ALL = 1 << Operation.ALL
_EVERY_OPERATION = sum(1 << operation for operation in Operation if operation not in (Operation.ANY, Operation.ALL))
_USES = 1 << Operation.READ | 1 << Operation.WRITE | 1 << Operation.DELETE | 1 << Operation.ALTER

_Pattern = tuple[int, int, str]
_Holder = tuple[str, str]


class Verdict(NamedTuple):
    """Permissions on one resource, one bit per operation number. `has_rules`: at least one ACL matches the resource, for any
    principal.
    """

    allowed: int
    denied: int
    has_rules: bool

    def allows(self, operation: int) -> bool:
        return bool(self.operations & (1 << operation))

    @property
    def operations(self) -> int:
        return self.allowed & ~self.denied


def verdict(acls: AclsImage, principal: str, host: str, resource_type: int, name: str) -> Verdict:
    """Evaluate the ACLs of one resource for a principal `Type:name` at a host."""
    allowed = denied = 0
    has_rules = False
    holders = _holders(principal, host)
    for pattern in _matching_patterns(acls, resource_type, name):
        has_rules = True
        found = _permissions(acls, pattern, holders)
        allowed |= found[0]
        denied |= found[1]
    return Verdict(_implied_by_allow(allowed), _implied_by_deny(denied), has_rules)


def allows_any(acls: AclsImage, principal: str, host: str, operation: int, resource_type: int, *, if_no_rules: bool) -> bool:
    """Return True if a resource name of that type can exist for which the operation is allowed. `if_no_rules`: the result for
    a name that no ACL matches.
    """
    holders = _holders(principal, host)
    bit = 1 << operation
    everything = (resource_type, int(PatternType.LITERAL), WILDCARD)
    if _implied_by_deny(_permissions(acls, everything, holders)[1]) & bit:
        return False
    if if_no_rules and everything not in acls.patterns:
        return True
    for kind, pattern_type, name, by, at in acls.permissions:
        if kind != resource_type or (by, at) not in holders:
            continue
        pattern = (kind, pattern_type, name)
        if not _implied_by_allow(acls.permissions[*pattern, by, at][0]) & bit:
            continue
        if pattern == everything:
            return True
        # All names with a prefix are denied only by an ACL of a shorter prefix, or of the same.
        patterns = _matching_patterns(acls, kind, name) if pattern_type == PatternType.LITERAL else _prefixes(acls, kind, name)
        if not any(_implied_by_deny(_permissions(acls, found, holders)[1]) & bit for found in patterns):
            return True
    return False


def _matching_patterns(acls: AclsImage, resource_type: int, name: str) -> Iterator[_Pattern]:
    """Patterns of ACLs that match a resource."""
    for literal in dict.fromkeys((name, WILDCARD)):
        pattern = (resource_type, int(PatternType.LITERAL), literal)
        if pattern in acls.patterns:
            yield pattern
    yield from _prefixes(acls, resource_type, name)


def _prefixes(acls: AclsImage, resource_type: int, name: str) -> Iterator[_Pattern]:
    for length in acls.prefix_lengths.get(resource_type, ()):
        pattern = (resource_type, int(PatternType.PREFIXED), name[:length])
        if length <= len(name) and pattern in acls.patterns:
            yield pattern


def _permissions(acls: AclsImage, pattern: _Pattern, holders: tuple[_Holder, ...]) -> tuple[int, int]:
    allowed = denied = 0
    for holder in holders:
        found = acls.permissions.get(pattern + holder)
        if found is not None:
            allowed |= found[0]
            denied |= found[1]
    return allowed, denied


def _holders(principal: str, host: str) -> tuple[_Holder, ...]:
    """(principal, host) pairs whose ACLs apply to a principal at a host."""
    return (principal, host), (principal, WILDCARD), (ANYBODY, host), (ANYBODY, WILDCARD)


def _implied_by_allow(bits: int) -> int:
    if bits & _ALL:
        return _EVERY_OPERATION
    if bits & _USES:
        bits |= 1 << Operation.DESCRIBE
    if bits & 1 << Operation.ALTER_CONFIGS:
        bits |= 1 << Operation.DESCRIBE_CONFIGS
    return bits


def _implied_by_deny(bits: int) -> int:
    return _EVERY_OPERATION if bits & _ALL else bits

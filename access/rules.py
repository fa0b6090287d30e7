"""What the access rules say together (KIP-11, KIP-290, KIP-801): the matching kernel.

Theory of operation. A rule concerns a resource if it names it literally, by `*`, or by a prefix. Of the rules that concern it,
those of the principal (or of `User:*`) and of the host (or of `*`) count. One that denies wins over any that allow; without one
that allows, nothing is allowed. To allow READ, WRITE, DELETE or ALTER allows DESCRIBE too, ALTER_CONFIGS allows
DESCRIBE_CONFIGS, ALL allows everything; to deny one of them denies nothing else, but ALL.

The image keeps rules arranged: by pattern, principal and host, as bits (`AclsImage.said`). So a question costs four look-ups for
the literal name, four for `*`, and four for each length that prefixes of that resource type have; it does not depend on how many
rules there are, and a change of the rules makes nothing to be built anew. Only `allows_any` looks at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.metadata.acls import WILDCARD, AclsImage, Operation, PatternType

ANYBODY = "User:*"
"""The principal whose rules are everybody's."""

_ALL = 1 << Operation.ALL
_EVERY_OPERATION = sum(1 << operation for operation in Operation if operation not in (Operation.ANY, Operation.ALL))
_USES = 1 << Operation.READ | 1 << Operation.WRITE | 1 << Operation.DELETE | 1 << Operation.ALTER

_Pattern = tuple[int, int, str]
_Who = tuple[str, str]


class Verdict(NamedTuple):
    """What rules say about one resource, as bits by operation. `concerned`: there are rules for it, be they of others."""

    allowed: int
    denied: int
    concerned: bool

    def allows(self, operation: int) -> bool:
        return bool(self.operations & (1 << operation))

    @property
    def operations(self) -> int:
        return self.allowed & ~self.denied


def verdict(acls: AclsImage, principal: str, host: str, resource_type: int, name: str) -> Verdict:
    """On one resource, for a principal `Type:name` that comes from this host."""
    allowed = denied = 0
    concerned = False
    whos = _whos(principal, host)
    for pattern in _concerning(acls, resource_type, name):
        concerned = True
        said = _said(acls, pattern, whos)
        allowed |= said[0]
        denied |= said[1]
    return Verdict(_meant_by_allowing(allowed), _meant_by_denying(denied), concerned)


def allows_any(acls: AclsImage, principal: str, host: str, operation: int, resource_type: int, *, if_unconcerned: bool) -> bool:
    """Whether there can be a resource of that type for which the operation is allowed. `if_unconcerned`: it is for those that no
    rule concerns.
    """
    whos = _whos(principal, host)
    bit = 1 << operation
    everything = (resource_type, int(PatternType.LITERAL), WILDCARD)
    if _meant_by_denying(_said(acls, everything, whos)[1]) & bit:
        return False
    if if_unconcerned and everything not in acls.patterns:
        return True
    for kind, pattern_type, name, by, at in acls.said:
        if kind != resource_type or (by, at) not in whos:
            continue
        pattern = (kind, pattern_type, name)
        if not _meant_by_allowing(acls.said[*pattern, by, at][0]) & bit:
            continue
        if pattern == everything:
            return True
        # What begins with a prefix is denied altogether only by a prefix of that.
        concerning = _concerning(acls, kind, name) if pattern_type == PatternType.LITERAL else _prefixes(acls, kind, name)
        if not any(_meant_by_denying(_said(acls, found, whos)[1]) & bit for found in concerning):
            return True
    return False


def _concerning(acls: AclsImage, resource_type: int, name: str) -> Iterator[_Pattern]:
    """The patterns of rules that concern a resource."""
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


def _said(acls: AclsImage, pattern: _Pattern, whos: tuple[_Who, ...]) -> tuple[int, int]:
    allowed = denied = 0
    for who in whos:
        said = acls.said.get(pattern + who)
        if said is not None:
            allowed |= said[0]
            denied |= said[1]
    return allowed, denied


def _whos(principal: str, host: str) -> tuple[_Who, ...]:
    """Whose rules count for a principal at a host."""
    return (principal, host), (principal, WILDCARD), (ANYBODY, host), (ANYBODY, WILDCARD)


def _meant_by_allowing(bits: int) -> int:
    if bits & _ALL:
        return _EVERY_OPERATION
    if bits & _USES:
        bits |= 1 << Operation.DESCRIBE
    if bits & 1 << Operation.ALTER_CONFIGS:
        bits |= 1 << Operation.DESCRIBE_CONFIGS
    return bits


def _meant_by_denying(bits: int) -> int:
    return _EVERY_OPERATION if bits & _ALL else bits

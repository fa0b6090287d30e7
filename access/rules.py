"""What the access rules say together (KIP-11, KIP-290, KIP-801): the matching kernel.

Theory of operation. A rule concerns a resource if it names it literally, by `*`, or by a prefix. Of the rules that concern it,
those of the principal (or of `User:*`) and of the host (or of `*`) count. One that denies wins over any that allow; without one
that allows, nothing is allowed. To allow READ, WRITE, DELETE or ALTER allows DESCRIBE too, ALTER_CONFIGS allows
DESCRIBE_CONFIGS, ALL allows everything; to deny one of them denies nothing else, but ALL.

`AclIndex` folds the rules of one pattern and one (principal, host) into two sets of bits, what they allow and what they deny,
when it is made. A question then costs four look-ups for the literal name, four for `*`, and four for each length that prefixes
of that resource type have: it does not depend on how many rules there are. An index never changes; rules that change make a
new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftlab.metadata.acls import WILDCARD, Acl, Operation, PatternType, PermissionType

ANYBODY = "User:*"
"""The principal whose rules are everybody's."""

ALL_OPERATIONS = sum(1 << operation for operation in Operation if operation not in (Operation.ANY, Operation.ALL))
"""As bits: each operation that a rule of ALL stands for."""

_IMPLIED = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}

_Who = tuple[str, str]
"""(principal, host) as a rule names them."""


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


class _Folded(NamedTuple):
    """The rules of one pattern and one (principal, host)."""

    allowed: int
    denied: int


_Pattern = dict[_Who, _Folded]
"""The rules of one pattern."""


class AclIndex:
    """The rules, arranged for questions. `rules`: numbers as in the protocol; those of unknown operations mean nothing."""

    def __init__(self, rules: Iterable[Acl]) -> None:
        self._literal: dict[tuple[int, str], _Pattern] = {}
        self._prefixed: dict[tuple[int, str], _Pattern] = {}
        lengths: dict[int, set[int]] = {}
        for rule in rules:
            if rule.pattern_type == PatternType.PREFIXED:
                patterns = self._prefixed
                lengths.setdefault(rule.resource_type, set()).add(len(rule.resource_name))
            else:
                patterns = self._literal
            pattern = patterns.setdefault((rule.resource_type, rule.resource_name), {})
            who = (rule.principal, rule.host)
            allowed, denied = pattern.get(who, _NOTHING)
            if rule.permission_type == PermissionType.DENY:
                denied |= _bits(rule.operation)
            else:
                allowed |= _with_implied(rule.operation)
            pattern[who] = _Folded(allowed, denied)
        self._lengths = {resource_type: tuple(sorted(found)) for resource_type, found in lengths.items()}

    def verdict(self, principal: str, host: str, resource_type: int, name: str) -> Verdict:
        """On one resource, for a principal `Type:name` that comes from this host."""
        allowed = denied = 0
        concerned = False
        whos = _whos(principal, host)
        for pattern in self._patterns(resource_type, name):
            concerned = True
            for who in whos:
                folded = pattern.get(who)
                if folded is not None:
                    allowed |= folded.allowed
                    denied |= folded.denied
        return Verdict(allowed, denied, concerned)

    def _patterns(self, resource_type: int, name: str) -> Iterator[_Pattern]:
        """Those that concern a resource."""
        pattern = self._literal.get((resource_type, name))
        if pattern is not None:
            yield pattern
        if name != WILDCARD:
            pattern = self._literal.get((resource_type, WILDCARD))
            if pattern is not None:
                yield pattern
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                return
            pattern = self._prefixed.get((resource_type, name[:length]))
            if pattern is not None:
                yield pattern

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int, *, if_unconcerned: bool) -> bool:
        """Whether there can be a resource of that type for which the operation is allowed. `if_unconcerned`: it is for those
        that no rule concerns.
        """
        whos = _whos(principal, host)
        bit = 1 << operation
        wildcard = self._literal.get((resource_type, WILDCARD), {})
        if any(wildcard[who].denied & bit for who in whos if who in wildcard):
            return False
        if any(wildcard[who].allowed & bit for who in whos if who in wildcard):
            return True
        if if_unconcerned and not wildcard:
            return True
        for patterns in (self._literal, self._prefixed):
            for (kind, name), pattern in patterns.items():
                if kind != resource_type or not any(pattern[who].allowed & bit for who in whos if who in pattern):
                    continue
                concerning = self._patterns(kind, name) if patterns is self._literal else self._prefixes(kind, name)
                if not any(found[who].denied & bit for found in concerning for who in whos if who in found):
                    return True
        return False

    def _prefixes(self, resource_type: int, name: str) -> Iterator[_Pattern]:
        """Patterns that concern everything that begins so."""
        for length in self._lengths.get(resource_type, ()):
            pattern = self._prefixed.get((resource_type, name[:length])) if length <= len(name) else None
            if pattern is not None:
                yield pattern


_NOTHING = _Folded(0, 0)


def _whos(principal: str, host: str) -> tuple[_Who, ...]:
    """Whose rules count for a principal at a host."""
    return (principal, host), (principal, WILDCARD), (ANYBODY, host), (ANYBODY, WILDCARD)


def _bits(operation: int) -> int:
    return ALL_OPERATIONS if operation == Operation.ALL else 1 << operation


def _with_implied(operation: int) -> int:
    implied = _IMPLIED.get(Operation(operation)) if operation in _KNOWN else None
    return _bits(operation) | (0 if implied is None else 1 << implied)


_KNOWN = frozenset(int(operation) for operation in Operation)

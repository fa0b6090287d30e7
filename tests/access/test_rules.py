"""The matching kernel against a naive twin, and the rules of matching one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.access.rules import Verdict, allows_any, verdict
from kraftlab.metadata.acls import Acl, AclsImage, Operation, PatternType, PermissionType, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
ALICE, BOB, HERE, THERE = "User:alice", "User:bob", "127.0.0.1", "10.0.0.1"
REAL = [operation for operation in Operation if operation not in (Operation.ANY, Operation.ALL)]
NAMES = ["".join(letters) for length in (1, 2, 3) for letters in itertools.product("abz", repeat=length)]
"""No ACL below has a z, so names with a z are names that match none."""


def rule(
    name: str,
    operation: Operation,
    permission: PermissionType = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def image(rules: Sequence[Acl]) -> AclsImage:
    return AclsImage().after({number.to_bytes(16, "big"): acl for number, acl in enumerate(dict.fromkeys(rules))})


def judged(rules: Sequence[Acl], principal: str, host: str, kind: int, name: str) -> Verdict:
    return verdict(image(rules), principal, host, kind, name)


def is_allowed(rules: Sequence[Acl], operation: Operation, name: str, principal: str = ALICE, host: str = HERE) -> bool:
    return judged(rules, principal, host, TOPIC, name).allows(operation)


# --- the naive twin ----------------------------------------------------------------------------------------------------------


def concerns(acl: Acl, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def speaks_of(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def naive(rules: Sequence[Acl], principal: str, host: str, operation: Operation, kind: int, name: str, if_no_rules: bool) -> bool:
    found = [acl for acl in rules if concerns(acl, kind, name)]
    if not found:
        return if_no_rules
    mine = [acl for acl in found if speaks_of(acl, principal, host)]
    if any(acl.permission_type == DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    enough = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough.add(Operation.ALTER_CONFIGS)
    return any(acl.permission_type == ALLOW and acl.operation in enough for acl in mine)


RULES = st.lists(
    st.builds(
        Acl,
        st.sampled_from([TOPIC, TOPIC, GROUP]),
        st.sampled_from(["*", "a", "b", "aa", "ab", "aab"]),
        st.sampled_from([LITERAL, PREFIXED]),
        st.sampled_from([ALICE, BOB, "User:*", "Group:alice"]),
        st.sampled_from(["*", HERE, THERE]),
        st.sampled_from([Operation.ALL, *REAL]),
        st.sampled_from([ALLOW, ALLOW, DENY]),
    ),
    max_size=12,
)


@given(RULES, st.sampled_from([ALICE, BOB, "User:carol"]), st.sampled_from([HERE, THERE]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_index_agrees_with_a_search_of_all_acls(rules: list[Acl], principal: str, host: str, open_house: bool) -> None:
    acls = image(rules)
    for name in NAMES:
        found = verdict(acls, principal, host, TOPIC, name)
        for operation in REAL:
            answer = found.allows(operation) if found.has_rules else open_house
            assert answer == naive(rules, principal, host, operation, TOPIC, name, open_house), (operation, name)


@given(RULES, st.sampled_from([ALICE, BOB]), st.sampled_from([Operation.WRITE, Operation.DESCRIBE]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_allows_any_agrees_with_a_search_of_names(
    rules: list[Acl], principal: str, operation: Operation, open_house: bool
) -> None:
    rules = [acl for acl in rules if acl.resource_name != "*" or acl.pattern_type == LITERAL]
    answer = allows_any(image(rules), principal, HERE, operation, TOPIC, if_no_rules=open_house)
    longer = [*NAMES, *(name + "z" for name in NAMES)]
    assert answer == any(naive(rules, principal, HERE, operation, TOPIC, name, open_house) for name in longer)


@given(st.lists(st.tuples(st.integers(0, 15), st.booleans()), max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_added_and_removed_acls_leave_the_same_arrangement(steps: list[tuple[int, bool]], source: random.Random) -> None:
    known = [
        Acl(TOPIC, source.choice(["*", "a", "ab"]), pattern, ALICE, "*", operation, permission)
        for pattern in (LITERAL, PREFIXED)
        for operation in (Operation.READ, Operation.ALL, Operation.ALTER, Operation.DESCRIBE)
        for permission in (ALLOW, DENY)
    ]
    acls, there = AclsImage(), dict.fromkeys(known, False)
    for number, is_added in steps:
        acl = known[number]
        if there[acl] != is_added:
            there[acl] = is_added
            acls = acls.after({number.to_bytes(16, "big"): acl if is_added else None})
    left = [acl for acl, is_there in there.items() if is_there]
    fresh = image(left)
    assert (acls.permissions, acls.patterns, acls.prefix_lengths) == (fresh.permissions, fresh.patterns, fresh.prefix_lengths)
    assert set(acls.ids) == set(left)


# --- one by one --------------------------------------------------------------------------------------------------------------


def test_without_acls_nothing_is_allowed_and_no_acl_matches() -> None:
    found = judged((), ALICE, HERE, TOPIC, "t")
    assert (found.allows(Operation.DESCRIBE), found.has_rules) == (False, False)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_to_allow_a_use_allows_to_describe(operation: Operation) -> None:
    assert is_allowed([rule("t", operation)], Operation.DESCRIBE, "t")
    assert not is_allowed([rule("t", operation)], Operation.DESCRIBE_CONFIGS, "t")


def test_to_allow_to_alter_configs_allows_to_describe_configs_only() -> None:
    rules = [rule("t", Operation.ALTER_CONFIGS)]
    assert is_allowed(rules, Operation.DESCRIBE_CONFIGS, "t")
    assert not is_allowed(rules, Operation.DESCRIBE, "t")


def test_to_deny_a_use_does_not_deny_to_describe() -> None:
    assert is_allowed([rule("t", Operation.ALL), rule("t", Operation.ALTER, DENY)], Operation.DESCRIBE, "t")


def test_denied_describe_overrides_the_implied_one() -> None:
    rules = [rule("t", Operation.ALTER), rule("t", Operation.DESCRIBE, DENY)]
    assert is_allowed(rules, Operation.ALTER, "t")
    assert not is_allowed(rules, Operation.DESCRIBE, "t")


def test_a_wider_rule_that_denies_wins_over_a_closer_one_that_allows() -> None:
    rules = [rule("t", Operation.ALL), rule("*", Operation.DELETE, DENY)]
    assert not is_allowed(rules, Operation.DELETE, "t")
    assert is_allowed(rules, Operation.READ, "t")


def test_a_prefix_matches_longer_names_and_itself() -> None:
    rules = [rule("pay", Operation.READ, pattern=PREFIXED)]
    assert [is_allowed(rules, Operation.READ, name) for name in ("pay", "payments", "pa", "xpay")] == [True, True, False, False]


def test_a_star_with_a_prefix_pattern_is_a_prefix() -> None:
    rules = [rule("*", Operation.READ, pattern=PREFIXED)]
    assert [is_allowed(rules, Operation.READ, name) for name in ("t", "*t")] == [False, True]


def test_acls_of_other_principals_and_hosts_match_but_do_not_count() -> None:
    rules = [rule("t", Operation.ALL, principal=BOB), rule("t", Operation.ALL, host=THERE)]
    found = judged(rules, ALICE, HERE, TOPIC, "t")
    assert (found.allows(Operation.READ), found.has_rules) == (False, True)


def test_acls_of_everybody_count_for_every_principal() -> None:
    assert is_allowed([rule("t", Operation.READ, principal="User:*")], Operation.READ, "t", principal="User:carol")


def test_rules_of_a_principal_of_another_type_do_not_count() -> None:
    assert not is_allowed([rule("t", Operation.ALL, principal="Group:alice")], Operation.READ, "t")


def test_rules_of_another_resource_type_do_not_count() -> None:
    assert not is_allowed([rule("t", Operation.ALL, kind=GROUP)], Operation.READ, "t")


def test_a_rule_of_an_operation_that_is_not_known_allows_nothing() -> None:
    acl = Acl(TOPIC, "t", LITERAL, ALICE, "*", 55, ALLOW)
    assert not any(is_allowed([acl], operation, "t") for operation in REAL)

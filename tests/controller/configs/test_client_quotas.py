"""AlterClientQuotas and DescribeClientQuotas: valid changes, refusals, and matching of filters."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError
from kraftlab.controller.configs import client_quotas

Entity = list[tuple[str, str | None]]
Operation = tuple[str, float | None]
"""(key, value); value None removes."""

PRODUCED, CONSUMED = "producer_byte_rate", "consumer_byte_rate"


def request_of(entries: list[tuple[Entity, list[Operation]]], validate_only: bool = False) -> admin_pb2.AlterClientQuotasRequest:
    request = admin_pb2.AlterClientQuotasRequest(validate_only=validate_only)
    for entity, operations in entries:
        entry = request.entries.add()
        for kind, name in entity:
            entry.entity.add(entity_type=kind, entity_name=name)
        for key, value in operations:
            entry.ops.add(key=key, value=value or 0.0, remove=value is None)
    return request


async def alter(cluster: Any, *entries: tuple[Entity, list[Operation]], validate_only: bool = False) -> list[tuple[int, str]]:
    response = await cluster.write(client_quotas.alter, request_of(list(entries), validate_only))
    return [(entry.error_code, entry.error_message) for entry in response.entries]


def described(cluster: Any, *components: tuple[str, int, str | None], strict: bool = False) -> dict[Any, dict[str, float]]:
    request = admin_pb2.DescribeClientQuotasRequest(strict=strict)
    for kind, match_type, match in components:
        request.components.add(entity_type=kind, match_type=match_type, match=match)
    response = client_quotas.describe(cluster.controller.committed, request)
    assert response.HasField("entries") and response.header.HasField("error_message")
    return {
        tuple((part.entity_type, part.entity_name if part.HasField("entity_name") else None) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries.values
    }


async def test_quotas_are_set_changed_and_removed_key_by_key(cluster: Any) -> None:
    alice: Entity = [("user", "alice")]
    assert await alter(cluster, (alice, [(PRODUCED, 1024.0), (CONSUMED, 2048.0)])) == [(0, "")]
    assert described(cluster, ("user", 0, "alice")) == {(("user", "alice"),): {CONSUMED: 2048.0, PRODUCED: 1024.0}}
    assert await alter(cluster, (alice, [(PRODUCED, None)])) == [(0, "")]
    assert described(cluster, ("user", 0, "alice")) == {(("user", "alice"),): {CONSUMED: 2048.0}}
    assert await alter(cluster, (alice, [(PRODUCED, None), (CONSUMED, None)])) == [(0, "")]
    assert described(cluster) == {}


async def test_an_unchanged_quota_makes_no_record(cluster: Any) -> None:
    await alter(cluster, ([("user", "alice")], [(PRODUCED, 1.0)]))
    end = cluster.quorum.end_offset
    await alter(cluster, ([("user", "alice")], [(PRODUCED, 1.0), (CONSUMED, None)]))
    assert await alter(cluster, ([("user", "bob")], [(PRODUCED, 1.0)]), validate_only=True) == [(0, "")]
    assert cluster.quorum.end_offset == end


@pytest.mark.parametrize(
    ("entity", "operations", "text"),
    [
        ([("planet", "x")], [(PRODUCED, 1.0)], "Unhandled client quota entity type: planet"),
        ([], [(PRODUCED, 1.0)], "Invalid empty client quota entity"),
        ([("user", "u")], [("no_such_key", 1.0)], "Invalid configuration key no_such_key"),
        ([("user", "u")], [(PRODUCED, 0.0)], "Quota producer_byte_rate must be greater than 0"),
        ([("user", "u")], [(PRODUCED, -1.0)], "Quota producer_byte_rate must be greater than 0"),
        ([("user", "u")], [(PRODUCED, float("nan"))], "Quota producer_byte_rate must be greater than 0"),
        ([("user", "u")], [(PRODUCED, 1.5)], "producer_byte_rate cannot be a fractional value."),
        (
            [("user", "u")],
            [(PRODUCED, 1e30)],
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            [("user", "u"), ("ip", "1.2.3.4")],
            [(PRODUCED, 1.0)],
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        ([("ip", "not an ip")], [("connection_creation_rate", 1.0)], "not an ip is not a valid IP or resolvable host."),
        ([("ip", "no.such.host")], [("connection_creation_rate", 1.0)], "no.such.host is not a valid IP or resolvable host."),
        (
            [("ip", "::1")],
            [("connection_creation_rate", 2.0**31)],
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ([("ip", "1.2.3.4")], [(PRODUCED, 1.0)], "Invalid configuration key producer_byte_rate"),
        ([("user", "")], [(PRODUCED, 1.0)], "Empty user not supported"),
        (
            [("user", "u")],
            [(PRODUCED, 1.0), (PRODUCED, 2.0)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})",
        ),
    ],
)
async def test_an_invalid_quota_is_refused(cluster: Any, entity: Entity, operations: list[Operation], text: str) -> None:
    end = cluster.quorum.end_offset
    assert await alter(cluster, (entity, operations)) == [(42, text)]
    assert cluster.quorum.end_offset == end


async def test_removing_an_unknown_quota_succeeds(cluster: Any) -> None:
    assert await alter(cluster, ([("user", "u")], [("no_such_key", None)])) == [(0, "")]


async def test_fractions_are_fine_for_percentages_and_mutations(cluster: Any) -> None:
    operations: list[Operation] = [("request_percentage", 12.5), ("controller_mutation_rate", 0.5)]
    assert await alter(cluster, ([("client-id", None)], operations)) == [(0, "")]


async def test_of_a_type_that_is_named_twice_the_last_counts_and_an_entity_named_twice_is_refused_once(cluster: Any) -> None:
    assert await alter(cluster, ([("user", "a"), ("user", "b")], [(PRODUCED, 1.0)])) == [(0, "")]
    assert described(cluster) == {(("user", "b"),): {PRODUCED: 1.0}}
    twice: tuple[Entity, list[Operation]] = ([("user", "u")], [(PRODUCED, 2.0)])
    assert await alter(cluster, twice, twice) == [(42, "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})")]


async def test_entries_are_independent_of_each_other(cluster: Any) -> None:
    answers = await alter(cluster, ([("user", "u")], [(PRODUCED, 1.0)]), ([("planet", "u")], [(PRODUCED, 2.0)]))
    assert [code for code, _ in answers] == [0, 42]
    assert described(cluster) == {(("user", "u"),): {PRODUCED: 1.0}}


@pytest.fixture
async def several(cluster: Any) -> Any:
    """Quotas of a user, the default user, a user's client, and an address."""
    entities: list[Entity] = [[("user", "u")], [("user", None)], [("user", "u"), ("client-id", "c")], [("ip", "1.1.1.1")]]
    for entity in entities:
        key = "connection_creation_rate" if entity[0][0] == "ip" else PRODUCED
        assert await alter(cluster, (entity, [(key, 1.0)])) == [(0, "")]
    return cluster


U, DEFAULT, U_C, IP = (("user", "u"),), (("user", None),), (("client-id", "c"), ("user", "u")), (("ip", "1.1.1.1"),)


@pytest.mark.parametrize(
    ("components", "strict", "matching"),
    [
        ([], False, [U_C, IP, U, DEFAULT]),
        ([("user", 0, "u")], False, [U_C, U]),
        ([("user", 0, "u")], True, [U]),
        ([("user", 1, None)], False, [DEFAULT]),
        ([("user", 2, None)], False, [U_C, U, DEFAULT]),
        ([("user", 0, "u"), ("client-id", 2, None)], True, [U_C]),
        ([("ip", 2, None)], True, [IP]),
        ([], True, []),
    ],
)
async def test_a_filter_finds_entities_that_match_all_its_components(
    several: Any, components: list[tuple[str, int, str | None]], strict: bool, matching: list[Any]
) -> None:
    assert list(described(several, *components, strict=strict)) == matching


@pytest.mark.parametrize(
    ("components", "code", "text"),
    [
        ([("planet", 0, "x")], 35, "Unsupported entity type planet"),
        ([("user", 0, "x"), ("user", 0, "y")], 42, "Entity type user cannot appear more than once in the filter."),
        ([("user", 7, "x")], 42, "Unknown match type 7"),
        ([("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("", 0, "x")], 42, "Invalid empty entity type."),
        (
            [("ip", 0, "1.1.1.1"), ("user", 0, "x")],
            42,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
            "component.",
        ),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    cluster: Any, components: list[tuple[str, int, str | None]], code: int, text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        described(cluster, *components)
    assert (refused.value.code, refused.value.message) == (code, text)

"""Quotas of users, clients and addresses in `kraftlab configs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftlab.admin.v1 import admin_pb2 as pb

from ..output import Output
from ..security import scram_command
from .text import Changes, Entity, check_are_set, parse_quotas, quota_line, updated_line

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_ANY = range(3)


def run(client: AdminClient, out: Output, entities: Sequence[Entity], changes: Changes | None) -> None:
    """Change quotas, or show them without changes. ApiError, BadInput."""
    if changes is not None:
        _alter(client, out, entities, changes)
    else:
        _describe(client, out, entities)


def _alter(client: AdminClient, out: Output, entities: Sequence[Entity], changes: Changes) -> None:
    quotas = parse_quotas(changes.added)
    if changes.deleted:
        found = _entries(client, _filter(entities), is_strict=True)
        check_are_set(changes, {value.key for entry in found for value in entry.values}, entities[0])
    entry = pb.ClientQuotaAlteration(
        entity=[pb.QuotaEntityPart(entity_type=entity.kind.quota_type, entity_name=entity.name) for entity in entities],
        ops=[
            *(pb.ClientQuotaOperation(key=key, value=value) for key, value in quotas.items()),
            *(pb.ClientQuotaOperation(key=key, remove=True) for key in changes.deleted),
        ],
    )
    client.call(pb.AlterClientQuotasResponse, pb.AlterClientQuotasRequest(entries=[entry]))
    out.lines([updated_line(entities[0])])
    out.result({"updated": [{"type": entity.kind.quota_type, "name": entity.name} for entity in entities]})


def _describe(client: AdminClient, out: Output, entities: Sequence[Entity]) -> None:
    """Show quotas. A filter of one type without a name includes quotas of that type combined with others, unlike Kafka's tool."""
    components = _filter(entities)
    has_any = any(entity.is_any for entity in entities)
    found = _entries(client, [] if has_any and len(entities) == 1 else components, is_strict=not has_any)
    types = {entity.kind.quota_type for entity in entities}
    document = []
    for entry in found:
        parts = [(part.entity_type, part.entity_name if part.HasField("entity_name") else None) for part in entry.entity]
        if has_any and not types & {kind for kind, _ in parts}:
            continue
        values = {value.key: value.value for value in entry.values}
        out.lines([quota_line(parts, values)])
        document.append({"entity": [{"type": kind, "name": name} for kind, name in parts], "quotas": values})
    credentials = scram_command.find(client, entities)
    out.lines(scram_command.lines(credentials))
    out.result({"quotas": document, "scram_credentials": [credential._asdict() for credential in credentials]})


def _entries(
    client: AdminClient, components: Sequence[pb.QuotaFilterComponent], *, is_strict: bool
) -> Sequence[pb.ClientQuotaEntry]:
    request = pb.DescribeClientQuotasRequest(components=components, strict=is_strict)
    return client.call(pb.DescribeClientQuotasResponse, request).entries.values


def _filter(entities: Sequence[Entity]) -> list[pb.QuotaFilterComponent]:
    return [
        pb.QuotaFilterComponent(entity_type=entity.kind.quota_type, match_type=_match_type(entity), match=entity.name)
        for entity in entities
    ]


def _match_type(entity: Entity) -> int:
    if entity.is_any:
        return _MATCH_ANY
    return _MATCH_DEFAULT if entity.name is None else _MATCH_EXACT

"""AlterClientQuotas and DescribeClientQuotas (KIP-546).

Theory of operation. Entries are independent of each other. Each is all or nothing, and makes one ClientQuota record per
changed key. An entity in two entries, or a key that is named twice in one entry, is refused as ambiguous. An entity is
answered once, with its first error.

All components of a filter have to match. Each names a type and a name, the default, or any name of the type. A strict filter
matches no entity with further types.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import immutables

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity, entity_order, quota_entity
from kraftlab.metadata.records import AnyRecord, ClientQuota

from ..engine.state import Context, ControllerState, Outcome, check_record_count
from .mutation_quota import MUTATION_RATE

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = range(3)

_CLIENT_KEYS: Mapping[str, bool] = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    MUTATION_RATE: False,
}
_IP_KEYS: Mapping[str, bool] = {"connection_creation_rate": True}
"""Key → whether its value is a whole number."""

_LIMITS = {"connection_creation_rate": ("an INT", (1 << 31) - 1)}
_LIMIT = ("a LONG", (1 << 63) - 1)


class _Parts(Protocol):
    """A repeated field of entity parts."""

    def add(self, *, entity_type: str) -> admin_pb2.QuotaEntityPart: ...


def alter(
    state: ControllerState, request: admin_pb2.AlterClientQuotasRequest, context: Context
) -> Outcome[admin_pb2.AlterClientQuotasResponse]:
    """Set and remove quotas. ApiError POLICY_VIOLATION for more records than a batch holds."""
    response = admin_pb2.AlterClientQuotasResponse()
    records: list[AnyRecord] = []
    entities = [quota_entity(_parts(entry.entity)) for entry in request.entries]
    times = Counter(entities)
    answered: set[QuotaEntity] = set()
    for entity, entry in zip(entities, request.entries, strict=True):
        if entity in answered:
            continue
        answered.add(entity)
        answer = response.entries.add()
        _add_parts(answer.entity, _parts(entry.entity))
        try:
            if times[entity] > 1:
                raise _duplicate(entity)
            records += _alter_entity(state, entity, entry.ops)
        except ApiError as error:
            set_error(answer, error)
    check_record_count(records)
    return Outcome([] if request.validate_only else records, response)


def _parts(named: Iterable[admin_pb2.QuotaEntityPart]) -> QuotaEntity:
    """Parts in the order of the request. If a type comes twice, the last part counts."""
    parts = {part.entity_type: part.entity_name if part.HasField("entity_name") else None for part in named}
    return tuple(parts.items())


def _add_parts(target: _Parts, parts: QuotaEntity) -> None:
    for kind, name in parts:
        part = target.add(entity_type=kind)
        if name is not None:
            part.entity_name = name


def _duplicate(entity: QuotaEntity) -> ApiError:
    names = [(kind, "<default>" if name is None else name) for kind, name in entity]
    shown = ", ".join(f"{kind}={name}" for kind, name in names)
    return ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")


def _alter_entity(
    state: ControllerState, entity: QuotaEntity, operations: Sequence[admin_pb2.ClientQuotaOperation]
) -> list[AnyRecord]:
    if len({operation.key for operation in operations}) < len(operations):
        raise _duplicate(entity)
    keys = _keys_of(entity)
    current: Mapping[str, float] = state.image.quotas.get(entity, immutables.Map())
    records: list[AnyRecord] = []
    for operation in operations:
        if operation.remove:
            if operation.key in current:
                records.append(ClientQuota(0, entity, operation.key, 0.0, remove=True))
            continue
        _check_value(keys, operation.key, operation.value)
        if current.get(operation.key) != operation.value:
            records.append(ClientQuota(0, entity, operation.key, operation.value))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, bool]:
    """Quota keys of an entity. ApiError INVALID_REQUEST if the entity is not valid."""
    if not entity:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    types = dict(entity)
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP in types and len(types) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    if IP not in types:
        return _CLIENT_KEYS
    if types[IP] is not None and not _is_host(types[IP] or ""):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{types[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_host(text: str) -> bool:
    """Return True for an address or localhost. A controller does not query a name server in the middle of a change."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def _check_value(keys: Mapping[str, bool], key: str, value: float) -> None:
    if key not in keys:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not value > 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if not keys[key]:
        if value == float("inf"):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} must be a number, not {value}")
        return
    kind, limit = _LIMITS.get(key, _LIMIT)
    if value > limit:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {kind}.")
    if value != int(value):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def describe(state: ControllerState, request: admin_pb2.DescribeClientQuotasRequest) -> admin_pb2.DescribeClientQuotasResponse:
    """Matching entities with their quotas, sorted. ApiError INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type."""
    wanted = _components(request.components)
    response = admin_pb2.DescribeClientQuotasResponse()
    response.header.error_message = ""
    response.entries.SetInParent()
    for entity in sorted(state.image.quotas, key=entity_order):
        if not _matches(entity, wanted, is_strict=request.strict):
            continue
        entry = response.entries.values.add()
        _add_parts(entry.entity, entity)
        for key, value in sorted(state.image.quotas[entity].items()):
            entry.values.add(key=key, value=value)
    return response


def _components(components: Iterable[admin_pb2.QuotaFilterComponent]) -> dict[str, tuple[int, str | None]]:
    """Type → (kind of match, name). ApiError for a filter that contradicts itself."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        name = component.match if component.HasField("match") else None
        if match_type == MATCH_EXACT and name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type == MATCH_DEFAULT and name is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        if match_type == MATCH_ANY and name is not None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
            )
        if match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        wanted[kind] = (match_type, name)
    if IP in wanted and len(wanted) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
            "component.",
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: Mapping[str, tuple[int, str | None]], *, is_strict: bool) -> bool:
    parts = dict(entity)
    if is_strict and parts.keys() != wanted.keys():
        return False
    for kind, (match_type, name) in wanted.items():
        if kind not in parts:
            return False
        if match_type == MATCH_EXACT and parts[kind] != name:
            return False
        if match_type == MATCH_DEFAULT and parts[kind] is not None:
            return False
    return True

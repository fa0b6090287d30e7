"""Client quotas: their part of the image, their records, and the quota that applies to a client (KIP-13, KIP-124, KIP-546).

A quota belongs to an entity: a user, a client id, both, or an ip. A part without a name is the default of its type. An entity
is a tuple of (type, name or None) sorted by type, so equal entities are equal values. The most specific quota of a client
applies, and a name comes before the default of its type; `resolve` has the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import immutables

from .maps import newest, written
from .records import ClientQuota

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

QuotaEntity = tuple[tuple[str, str | None], ...]
"""((type, name or None), …), sorted by type."""

QuotasImage = immutables.Map[QuotaEntity, immutables.Map[str, float]]


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Entity of these parts. If a type comes twice, the last part counts."""
    return tuple(sorted(dict(parts).items()))


class QuotasDelta:
    """Quotas while records are replayed on `image`."""

    def __init__(self, image: QuotasImage) -> None:
        self.image = image
        self.changed: dict[QuotaEntity, immutables.Map[str, float] | None] = {}

    def replay(self, record: ClientQuota) -> None:
        """Set or remove one key of an entity. An entity without keys is removed."""
        entity = record.entity
        values: immutables.Map[str, float] = newest(self.image, self.changed, entity) or immutables.Map()
        self.changed[entity] = written(values, {record.key: None if record.remove else record.value}) or None


def quota_records(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Iterator[ClientQuota]:
    """The snapshot's records, sorted by entity and key."""
    for entity, values in sorted(quotas.items(), key=lambda item: entity_order(item[0])):
        for key, value in sorted(values.items()):
            yield ClientQuota(0, entity, key, value)


def entity_order(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    """A sort key: by type, names before the default."""
    return tuple((kind, name is None, name or "") for kind, name in entity)


def resolve(quotas: QuotasImage, user: str, client_id: str, key: str) -> tuple[QuotaEntity, float] | None:
    """Return the entity and value of the quota that applies to a client, None if there is no limit.

    The entity has the client's own names: clients that share a default have a limit each.
    """
    for named_user, named_client in (
        ((user,), (client_id,)),
        ((user,), (None,)),
        ((user,), ()),
        ((None,), (client_id,)),
        ((None,), (None,)),
        ((None,), ()),
        ((), (client_id,)),
        ((), (None,)),
    ):
        configured = quota_entity([(USER, name) for name in named_user] + [(CLIENT_ID, name) for name in named_client])
        value = quotas.get(configured, _NOTHING).get(key)
        if value is not None:
            own = [(USER, user) for _ in named_user] + [(CLIENT_ID, client_id) for _ in named_client]
            return quota_entity(own), value
    return None


_NOTHING: immutables.Map[str, float] = immutables.Map()

"""Client quotas in the image, and the quota that applies to a client."""

from __future__ import annotations

import immutables
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.quotas import QuotaEntity, QuotasImage, entity_order, quota_entity, quota_records, resolve
from kraftlab.metadata.records import ClientQuota

RATE = "controller_mutation_rate"
ALICE = (("user", "alice"),)


def replay(*records: ClientQuota) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    delta.replay_all(records, 0)
    return delta.apply(EMPTY.provenance)


def test_keys_are_set_one_by_one_and_an_entity_without_keys_is_gone() -> None:
    both = [ClientQuota(0, ALICE, "producer_byte_rate", 1.0), ClientQuota(0, ALICE, RATE, 2.0)]
    assert dict(replay(*both).quotas[ALICE]) == {"producer_byte_rate": 1.0, RATE: 2.0}
    removed = [ClientQuota(0, ALICE, key, 0.0, remove=True) for key in ("producer_byte_rate", RATE)]
    assert dict(replay(*both, removed[0]).quotas[ALICE]) == {RATE: 2.0}
    assert ALICE not in replay(*both, *removed).quotas


def test_removing_an_unset_quota_changes_nothing() -> None:
    assert replay(ClientQuota(0, ALICE, RATE, 0.0, remove=True)).quotas == EMPTY.quotas


def test_an_entity_is_the_same_in_any_order_and_the_last_of_a_type_counts() -> None:
    assert quota_entity([("user", "a"), ("client-id", None)]) == quota_entity([("client-id", None), ("user", "a")])
    assert quota_entity([("user", "a"), ("user", "b")]) == (("user", "b"),)


def test_the_most_specific_quota_counts() -> None:
    order: list[QuotaEntity] = [
        (("client-id", "c"), ("user", "alice")),
        (("client-id", None), ("user", "alice")),
        (("user", "alice"),),
        (("client-id", "c"), ("user", None)),
        (("client-id", None), ("user", None)),
        (("user", None),),
        (("client-id", "c"),),
        (("client-id", None),),
    ]
    quotas: QuotasImage = immutables.Map()
    for rate, entity in enumerate(reversed(order)):
        quotas = quotas.set(entity, immutables.Map({RATE: float(rate)}))
        assert resolve(quotas, "alice", "c", RATE) == (
            quota_entity((kind, {"user": "alice", "client-id": "c"}[kind]) for kind, _ in entity),
            float(rate),
        )


def test_clients_that_share_a_default_have_a_limit_each() -> None:
    quotas = immutables.Map({(("user", None),): immutables.Map({RATE: 1.0})})
    assert resolve(quotas, "alice", "", RATE) == ((("user", "alice"),), 1.0)
    assert resolve(quotas, "bob", "", RATE) == ((("user", "bob"),), 1.0)


def test_without_a_quota_there_is_no_limit() -> None:
    assert resolve(immutables.Map(), "alice", "c", RATE) is None
    other_key = immutables.Map({ALICE: immutables.Map({"producer_byte_rate": 1.0})})
    assert resolve(other_key, "alice", "c", RATE) is None


ENTITIES = st.builds(
    quota_entity,
    st.lists(
        st.tuples(st.sampled_from(["user", "client-id", "ip"]), st.sampled_from([None, "", "a", "b"])), min_size=1, max_size=3
    ),
)


@given(st.dictionaries(ENTITIES, st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0.1, 9), min_size=1)))
def test_records_make_the_same_quotas_and_are_in_order(quotas: dict[QuotaEntity, dict[str, float]]) -> None:
    records = list(quota_records(quotas))
    assert {entity: dict(values) for entity, values in replay(*records).quotas.items()} == quotas
    assert records == sorted(records, key=lambda record: (entity_order(record.entity), record.key))


@pytest.mark.parametrize("names", [(None, "a"), ("", "a"), ("a", "b")])
def test_names_go_before_the_default(names: tuple[str | None, str | None]) -> None:
    entities = [quota_entity([("user", name)]) for name in names]
    assert (entity_order(entities[0]) < entity_order(entities[1])) == (names[0] is not None)

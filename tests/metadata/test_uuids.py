"""Ids: the text form for people, reserved values, and reserved directory ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.uuids import LOST, MIGRATING, UNASSIGNED, ZERO, Uuid, from_text, is_reserved, random_uuid, to_text
from kraftlab.metadata.image import BrokerImage

D1, D2 = bytes([101]) * 16, bytes([102]) * 16


@given(st.binary(min_size=16, max_size=16))
def test_text_has_22_characters_and_comes_back(value: Uuid) -> None:
    assert len(to_text(value)) == 22
    assert from_text(to_text(value)) == value


@pytest.mark.parametrize("text", ["", "short", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 21 + "=", "A" * 21 + "é", "+" * 22])
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id of 22 base64url characters") as error:
        from_text(text)
    assert repr(text) in str(error.value)


def test_random_ids_are_neither_reserved_nor_mistaken_for_an_option() -> None:
    ids = [random_uuid() for _ in range(500)]
    assert not any(is_reserved(value) or to_text(value).startswith("-") for value in ids)
    assert all(map(is_reserved, (ZERO, MIGRATING, UNASSIGNED, LOST, (99).to_bytes(16, "big"))))
    assert not is_reserved((100).to_bytes(16, "big"))


@pytest.mark.parametrize(
    ("registered", "directory", "online"),
    [
        ((D1,), D1, True),
        ((D1,), D2, False),
        ((D1,), UNASSIGNED, True),
        ((D1,), MIGRATING, True),
        ((D1,), LOST, False),
        ((), D2, True),
        ((), LOST, False),
    ],
)
def test_a_replica_is_online_unless_its_directory_is_known_to_be_gone(
    registered: tuple[Uuid, ...], directory: Uuid, online: bool
) -> None:
    broker = BrokerImage(1, 5, D1, (), (), None, False, False, registered, 5)
    assert broker.has_online(directory) is online

"""What a client calls itself goes with its calls."""

from __future__ import annotations

import pytest

from kraftlab.client.channels import Channels


def test_a_client_id_is_sent_with_every_call_beside_who_asks() -> None:
    assert Channels().metadata == ()
    assert Channels(client_id="loader").metadata == (("kraftlab-client-id", "loader"),)
    assert Channels("alice", "secret", "loader").metadata == (
        ("kraftlab-user", "alice"),
        ("kraftlab-password", "secret"),
        ("kraftlab-client-id", "loader"),
    )


def test_a_client_id_that_cannot_be_sent_is_told() -> None:
    with pytest.raises(ValueError, match="the client id has characters"):
        Channels(client_id="löader")

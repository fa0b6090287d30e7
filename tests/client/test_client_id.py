"""The client id goes with every call."""

from __future__ import annotations

import pytest

from kraftlab.client.channels import Channels
from kraftlab.client.security import ClientSecurity


def test_a_client_id_is_sent_with_every_call_beside_the_user() -> None:
    assert Channels().headers() == ()
    assert Channels(client_id="loader").headers() == (("kraftlab-client-id", "loader"),)
    assert Channels(ClientSecurity(user="alice", password="secret"), "loader").headers() == (
        ("kraftlab-user", "alice"),
        ("kraftlab-password", "secret"),
        ("kraftlab-client-id", "loader"),
    )


def test_an_invalid_client_id_is_refused() -> None:
    with pytest.raises(ValueError, match="the client id has characters"):
        Channels(client_id="löader")

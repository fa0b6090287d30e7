"""The caller of a gRPC request: credentials in its metadata, and the address of a client, as gRPC names its peer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from kraftlab.access.logins import SaslLogin
from kraftlab.access.users import AuthenticationFailed
from kraftlab.rpc.caller import Caller, caller_of, host_of


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:44122", "127.0.0.1"),
        ("ipv6:%5B::1%5D:57956", "::1"),
        ("ipv6:[2001:db8::7]:57956", "2001:db8::7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5", "fe80::1%eth0"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5", "10.0.0.1"),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_peer_is_its_name_without_family_and_port(peer: str, host: str) -> None:
    assert host_of(peer) == host


class Asking:
    """A client that sends these headers."""

    def __init__(self, *headers: tuple[str, str]) -> None:
        self._headers = headers

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        return self._headers

    def peer(self) -> str:
        return "ipv4:10.0.0.7:5"

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return {}


LOGIN = SaslLogin({"alice": "alice-secret"}, name_of_token=lambda token: "carol")
ALICE = ("kraftlab-user", "alice"), ("kraftlab-password", "alice-secret")


@pytest.mark.parametrize(
    ("headers", "twice"),
    [
        ([*ALICE, ("kraftlab-user", "alice")], "kraftlab-user"),
        ([("kraftlab-password", "wrong"), *ALICE], "kraftlab-password"),
        ([("authorization", "Bearer a"), ("authorization", "Bearer a")], "authorization"),
    ],
)
def test_a_credential_that_is_sent_twice_is_refused(headers: list[tuple[str, str]], twice: str) -> None:
    """A proxy in between may have checked the other one."""
    with pytest.raises(AuthenticationFailed, match=f"{twice} is there twice; send it once"):
        asyncio.run(caller_of(Asking(*headers), LOGIN))


def test_other_headers_may_be_sent_twice() -> None:
    headers = (*ALICE, ("x", "1"), ("x", "2"), ("kraftlab-client-id", "tool"))
    assert asyncio.run(caller_of(Asking(*headers), LOGIN)) == Caller("User:alice", "10.0.0.7", "tool")

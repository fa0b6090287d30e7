"""The caller of a request: the principal that its metadata or its certificate proves, and its address."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from kraftlab.access.logins import CREDENTIAL_HEADERS, Login
from kraftlab.access.users import AuthenticationFailed

from .methods import CLIENT_ID_HEADER


class Peer(Protocol):
    """gRPC's view of the other side of a call (`grpc.aio.ServicerContext`)."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...

    def peer(self) -> str: ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]: ...


class Caller(NamedTuple):
    """`principal` as access rules name it, `host` as an IP address in text, `client_id` the client's name for itself."""

    principal: str
    host: str
    client_id: str = ""


async def caller_of(context: Peer, login: Login) -> Caller:
    """Return the caller of a call or stream. AuthenticationFailed if its claim is wrong, or there are two."""
    headers: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if key in headers and key in CREDENTIAL_HEADERS:
            raise AuthenticationFailed(f"{key} is there twice; send it once")
        if isinstance(value, str):
            headers[key] = value
    principal = await login.principal(headers, _certificate(context))
    return Caller(principal, host_of(context.peer()), headers.get(CLIENT_ID_HEADER, ""))


def host_of(peer: str) -> str:
    """Return the IP address in gRPC's name of a peer (`ipv4:10.0.0.1:5007`, `ipv6:%5B::1%5D:5007`); "" if there is none."""
    family, _, address = unquote(peer).partition(":")
    if family not in ("ipv4", "ipv6"):
        return ""
    return address.rpartition(":")[0].strip("[]").removeprefix("::ffff:")


def _certificate(context: Peer) -> bytes | None:
    """Return the certificate that the client showed (DER)."""
    text = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return None if text is None else ssl.PEM_cert_to_DER_cert(text.decode())

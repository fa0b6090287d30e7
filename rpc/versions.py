"""Versions of requests: the newest by default, and refusals of those that are not offered."""

from __future__ import annotations

from google.protobuf.message import Message

from .calls import CALLS, fault
from .methods import Method, header_of

UNSUPPORTED_VERSION = 35
API_VERSIONS = "ApiVersions"


def version_of(request: Message) -> int:
    """Return Kafka's version of a request; by default the newest that is offered. Calls that Kafka does not have: 0."""
    header = header_of(request)
    if header.HasField("api_version"):
        return header.api_version
    return CALLS[type(request).__name__.removesuffix("Request")].highest


def refusal(method: Method, request: Message) -> Message | None:
    """Return the answer to a request in an unsupported version, None if it is supported.

    ApiVersions answers for itself, because any client must understand its oldest answer.
    """
    header = header_of(request)
    if not header.HasField("api_version") or method.api == API_VERSIONS:
        return None
    offer = CALLS[method.api]
    if offer.lowest <= header.api_version <= offer.highest:
        return None
    offered = f"{offer.lowest} to {offer.highest}" if offer.lowest < offer.highest else str(offer.highest)
    return fault(
        method,
        f"{method.api} version {header.api_version} is not offered; use version {offered}, or none for the newest.",
        UNSUPPORTED_VERSION,
    )

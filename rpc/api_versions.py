"""ApiVersions: the requests that a node understands, and the features of its cluster (KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.features import KRAFT_VERSION, SUPPORTED

from .calls import OFFERS, Row
from .versions import API_VERSIONS, version_of

FIRST_WITH_SOFTWARE = 3
FIRST_WITH_ZERO_MINIMUM = 4
"""First version with features whose minimum is level 0; older clients cannot read that."""
NO_EPOCH = -1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def describe(
    request: admin_pb2.ApiVersionsRequest,
    offers: Iterable[Row],
    finalized: Mapping[str, int],
    kraft_version: int,
    epoch: int,
) -> admin_pb2.ApiVersionsResponse:
    """Return a node's offers. `finalized` are the levels of the cluster's metadata as of `epoch`, an offset.

    ApiError INVALID_REQUEST if the client's software has an invalid name. An unsupported version of this request is answered with
    UNSUPPORTED_VERSION and the offered versions of it, so that the client can choose another.
    """
    version = version_of(request)
    offer = OFFERS[API_VERSIONS]
    if not offer.lowest <= version <= offer.highest:
        response = admin_pb2.ApiVersionsResponse(finalized_features_epoch=NO_EPOCH)
        response.header.error_code = ErrorCode.UNSUPPORTED_VERSION
        response.header.error_message = f"ApiVersions is offered in versions {offer.lowest} to {offer.highest}, not {version}."
        _add_offers(response, (offer,))
        return response
    if version >= FIRST_WITH_SOFTWARE:
        _check_software(request)
    response = admin_pb2.ApiVersionsResponse(finalized_features_epoch=epoch)
    _add_offers(response, offers)
    for name, (lowest, highest) in sorted(SUPPORTED.items()):
        if lowest > 0 or version >= FIRST_WITH_ZERO_MINIMUM:
            response.supported_features.add(name=name, min_version=lowest, max_version=highest)
    levels = {**finalized, KRAFT_VERSION: kraft_version}
    for name, level in sorted(levels.items()):
        if level > 0:
            response.finalized_features.add(name=name, min_version_level=level, max_version_level=level)
    return response


def names_software(text: str) -> bool:
    """Return True if the text can be the name or the version of a client's software."""
    return _SOFTWARE.fullmatch(text) is not None


def _add_offers(response: admin_pb2.ApiVersionsResponse, offers: Iterable[Row]) -> None:
    for offer in offers:
        response.api_keys.add(api_key=offer.key, min_version=offer.lowest, max_version=offer.highest, name=offer.name)


def _check_software(request: admin_pb2.ApiVersionsRequest) -> None:
    """Raise ApiError unless a given software name has letters and digits, with dots and dashes inside."""
    for field in ("client_software_name", "client_software_version"):
        text: str = getattr(request, field)
        if request.HasField(field) and not names_software(text):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{field}={text!r} is not a valid name of software; use letters and digits, with dots and dashes inside.",
            )

"""Certificates as lines for people and as JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kraftlab.access.distinguished_name import name_text
from kraftlab.certificates.stores import alternative_names

USAGES = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}


def document(path: str, certificate: x509.Certificate, now: datetime) -> dict[str, object]:
    """Return a certificate as a JSON document. Times are UTC; `days_left` is negative after the end."""
    end = certificate.not_valid_after_utc
    return {
        "file": path,
        "subject": name_text(certificate.subject),
        "issuer": name_text(certificate.issuer),
        "names": list(alternative_names(certificate)),
        "usages": usages(certificate),
        "not_before": f"{certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}",
        "not_after": f"{end:%Y-%m-%dT%H:%M:%SZ}",
        "days_left": (end - now).days,
        "is_valid_now": certificate.not_valid_before_utc <= now < end,
    }


def lines(documents: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of `certificates show`."""
    for each in documents:
        yield f"{each['file']}: {each['subject']}"
        yield f"  issuer   {each['issuer']}"
        if listed := each["names"]:
            yield f"  names    {_joined(listed)}"
        yield f"  usage    {_joined(each['usages'])}"
        yield f"  expires  {each['not_after']} ({_time_left(each)})"


def usages(certificate: x509.Certificate) -> list[str]:
    """Return the sides of a connection that the certificate is for; `authority` for one that issues others."""
    try:
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return ["authority"]
    except (x509.ExtensionNotFound, ValueError):
        pass
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return list(USAGES.values())  # without the extension it is good for both
    return [USAGES.get(usage, usage.dotted_string) for usage in found]


def _joined(values: object) -> str:
    assert isinstance(values, list)
    return ", ".join(values)


def _time_left(document: Mapping[str, object]) -> str:
    days = document["days_left"]
    assert isinstance(days, int)
    if days < 0:
        return "EXPIRED; renew it: kraftlab certificates renew FILE"
    return f"in {days} days" if document["is_valid_now"] else f"NOT YET VALID, from {document['not_before']}"

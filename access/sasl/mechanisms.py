"""Names of the SASL mechanisms of a listener, and the limits of its sessions."""

from __future__ import annotations

from collections.abc import Sequence

PLAIN = "PLAIN"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
SERVED = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
_REFUSED = {
    "GSSAPI": "Kerberos is not served",
    "SCRAM-SHA-1": "SHA-1 is broken",
    "DIGEST-MD5": "MD5 is broken",
}
"""Mechanisms that people may ask for → the reason why they are not served."""

MAX_REAUTH_MS_MIN = 5000
"""With sessions shorter than this, clients authenticate again without end."""


def check_mechanisms(names: Sequence[str]) -> None:
    """ValueError unless `sasl.enabled.mechanisms` has mechanisms, and only those that are served."""
    served = ", ".join(SERVED)
    if not names:
        raise ValueError(f"no mechanism is enabled; name at least one of {served} (Kafka's default, GSSAPI, is not served)")
    for name in names:
        if name not in SERVED:
            raise ValueError(f"{name}: {_REFUSED.get(name, 'there is no such mechanism')}; use some of {served}")


def check_max_reauth_ms(value_ms: int) -> None:
    """ValueError unless `connections.max.reauth.ms` is 0, which means without end, or long enough."""
    if value_ms != 0 and value_ms < MAX_REAUTH_MS_MIN:
        raise ValueError(
            f"{value_ms} is too short: clients need time to authenticate again; use 0 (off) or {MAX_REAUTH_MS_MIN} and more"
        )

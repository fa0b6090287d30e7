"""TLS settings of one listener or client, from properties as in Kafka: `ssl.keystore.location` and the other `ssl.*`.

A listener's own value is written `listener.name.<name in lower case>.KEY`; without it `KEY` counts. `for_listener` returns the
values that count. `tls_settings` checks them, with Kafka's refusals (KIP-651); no file is read here. Passwords and keys are in
no `repr` and no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlab.access.principal_mapping import MappingError, PrincipalMapping, parse_rules

from .config_key import split_list
from .errors import ConfigError

PEM, PKCS12 = "PEM", "PKCS12"
TYPES = (PEM, PKCS12)
CLIENT_AUTH = ("none", "requested", "required")
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
}
"""Suites of TLS 1.2: the name in `ssl.cipher.suites` → OpenSSL's name."""
CIPHERS_OF_TLS13 = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})
"""Suites of TLS 1.3. OpenSSL offers all of them, and Python cannot choose."""

_PREFIX = "listener.name."
_CLIENT_AUTH = "ssl.client.auth"


@dataclass(frozen=True)
class TlsSettings:
    """Checked settings. `source` names the listener or the file in errors. Empty strings are not set."""

    source: str
    keystore_type: str
    keystore_location: str
    keystore_password: str = field(repr=False)
    keystore_key: str = field(repr=False)
    certificate_chain: str = field(repr=False)
    key_password: str = field(repr=False)
    truststore_type: str
    truststore_location: str
    truststore_password: str = field(repr=False)
    truststore_certificates: str = field(repr=False)
    client_auth: str
    checks_host_name: bool
    protocols: tuple[str, ...]
    ciphers: tuple[str, ...]
    """OpenSSL's names of the suites of TLS 1.2; empty for OpenSSL's choice."""
    principal_mapping: PrincipalMapping
    allows_dn_changes: bool
    allows_san_changes: bool

    @property
    def has_keystore(self) -> bool:
        return bool(self.keystore_location or self.keystore_key)

    @property
    def has_truststore(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)

    @property
    def keystore_name(self) -> str:
        """The keystore in errors."""
        return self._name("ssl.keystore", self.keystore_location, "ssl.keystore.key")

    @property
    def truststore_name(self) -> str:
        """The truststore in errors."""
        return self._name("ssl.truststore", self.truststore_location, "ssl.truststore.certificates")

    def _name(self, store: str, location: str, inline: str) -> str:
        return f"{self.source}: {store}.location={location}" if location else f"{self.source}: {inline}"


def for_listener(properties: Mapping[str, str], listener: str, *, has_sasl: bool = False) -> dict[str, str]:
    """Return the values that count for a listener, without its prefix. ConfigError: with SASL, Kafka ignores a `ssl.client.auth`
    without prefix (KIP-684), so that nobody relies on it.
    """
    prefix = f"{_PREFIX}{listener.lower()}."
    values = {key: value for key, value in properties.items() if not key.startswith(_PREFIX)}
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    if has_sasl and _CLIENT_AUTH not in own and (value := values.pop(_CLIENT_AUTH, "none").strip().lower()) not in ("", "none"):
        raise ConfigError(
            f"{_CLIENT_AUTH}={value} does not count for listener {listener}, which uses SASL; write "
            f"{prefix}{_CLIENT_AUTH}={value}, or {prefix}{_CLIENT_AUTH}=none"
        )
    return values | own


def tls_settings(values: Mapping[str, str], source: str) -> TlsSettings:
    """Return the settings in the values that count. ConfigError names the key and the next step."""

    def text(key: str) -> str:
        return values.get(key, "").strip()

    def fail(fault: str) -> ConfigError:
        return ConfigError(f"{source}: {fault}")

    def choice(key: str, default: str, choices: tuple[str, ...]) -> str:
        value = (text(key) or default).lower()
        if value not in choices:
            raise fail(f"{key}={text(key)}: expected one of {', '.join(choices)}")
        return value

    protocols = split_list(values.get("ssl.enabled.protocols", "")) or PROTOCOLS
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise fail(f"ssl.enabled.protocols names {protocol}, which is not served; write {','.join(PROTOCOLS)} or one of them")
    suites = split_list(values.get("ssl.cipher.suites", ""))
    ciphers, protocols = _ciphers(suites, protocols, source)
    identification = values.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if identification not in ("https", ""):
        raise fail(
            f"ssl.endpoint.identification.algorithm={identification}: expected https, or nothing for no check of host names"
        )
    try:
        mapping = parse_rules(values.get("ssl.principal.mapping.rules", "DEFAULT"))
    except MappingError as error:
        raise fail(f"ssl.principal.mapping.rules: {error}") from error
    settings = TlsSettings(
        source=source,
        keystore_type=(text("ssl.keystore.type") or "JKS").upper(),
        keystore_location=text("ssl.keystore.location"),
        keystore_password=text("ssl.keystore.password"),
        keystore_key=text("ssl.keystore.key"),
        certificate_chain=text("ssl.keystore.certificate.chain"),
        key_password=text("ssl.key.password"),
        truststore_type=(text("ssl.truststore.type") or "JKS").upper(),
        truststore_location=text("ssl.truststore.location"),
        truststore_password=text("ssl.truststore.password"),
        truststore_certificates=text("ssl.truststore.certificates"),
        client_auth=choice(_CLIENT_AUTH, "none", CLIENT_AUTH),
        checks_host_name=identification == "https",
        protocols=protocols,
        ciphers=ciphers,
        principal_mapping=mapping,
        allows_dn_changes=choice("ssl.allow.dn.changes", "false", ("true", "false")) == "true",
        allows_san_changes=choice("ssl.allow.san.changes", "false", ("true", "false")) == "true",
    )
    for fault in (_keystore_fault(settings), _truststore_fault(settings)):
        if fault:
            raise fail(fault)
    return settings


def _ciphers(suites: tuple[str, ...], protocols: tuple[str, ...], source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return OpenSSL's names of the suites of TLS 1.2, and the protocols that have a suite left. ConfigError."""
    if not suites:
        return (), protocols
    for suite in suites:
        if suite not in CIPHERS and suite not in CIPHERS_OF_TLS13:
            raise ConfigError(
                f"{source}: ssl.cipher.suites names {suite}, which is not offered; remove it, or choose from "
                f"{', '.join((*CIPHERS, *sorted(CIPHERS_OF_TLS13)))}"
            )
    missing = CIPHERS_OF_TLS13.difference(suites)
    if missing and missing != CIPHERS_OF_TLS13 and "TLSv1.3" in protocols:
        raise ConfigError(
            f"{source}: ssl.cipher.suites names some suites of TLS 1.3, which are offered all or none; add "
            f"{', '.join(sorted(missing))}, or remove the others"
        )
    ciphers = tuple(CIPHERS[suite] for suite in suites if suite in CIPHERS)
    has_suite = {"TLSv1.2": bool(ciphers), "TLSv1.3": not missing}
    left = tuple(protocol for protocol in protocols if has_suite[protocol])
    if not left:
        raise ConfigError(f"{source}: ssl.cipher.suites has no suite for {','.join(protocols)}; add one, or remove the key")
    return ciphers, left


def _keystore_fault(settings: TlsSettings) -> str:
    """Return Kafka's refusal of a keystore, with the next step; "" if there is none."""
    kind, is_pem = settings.keystore_type, settings.keystore_type == PEM
    has_store, has_password = bool(settings.keystore_location), bool(settings.keystore_password)
    if settings.keystore_key:
        rows = (
            (
                not is_pem,
                f"SSL private key can be specified only for PEM, but key store type is {kind}. Set ssl.keystore.type=PEM.",
            ),
            (
                not settings.certificate_chain,
                "SSL private key is specified, but certificate chain is not specified. Set ssl.keystore.certificate.chain.",
            ),
            (has_store, "Both SSL key store location and separate private key are specified. Remove one of them."),
        )
    else:
        rows = (
            (
                bool(settings.certificate_chain),
                "SSL certificate chain is specified, but private key is not specified. Set ssl.keystore.key.",
            ),
            (
                has_password and not has_store,
                "SSL key store is not specified, but key store password is specified. Set ssl.keystore.location.",
            ),
            (
                kind == PKCS12 and has_store and not has_password,
                "SSL key store is specified, but key store password is not specified. Set ssl.keystore.password.",
            ),
        )
    password = (
        is_pem and has_password,
        "SSL key store password cannot be specified with PEM format, only key password may be specified. Use ssl.key.password.",
    )
    return next((text for is_at_fault, text in (*rows, password) if is_at_fault), "")


def _truststore_fault(settings: TlsSettings) -> str:
    """Return Kafka's refusal of a truststore, with the next step; "" if there is none."""
    kind, is_pem = settings.truststore_type, settings.truststore_type == PEM
    has_inline, has_store = bool(settings.truststore_certificates), bool(settings.truststore_location)
    has_password = bool(settings.truststore_password)
    rows = (
        (
            has_inline and not is_pem,
            f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}. Set ssl.truststore.type=PEM.",
        ),
        (
            has_inline and has_store,
            "Both SSL trust store location and separate trust certificates are specified. Remove one of them.",
        ),
        (is_pem and has_password, "SSL trust store password cannot be specified for PEM format. Remove ssl.truststore.password."),
        (
            has_password and not has_store,
            "SSL trust store is not specified, but trust store password is specified. Set ssl.truststore.location.",
        ),
    )
    return next((text for is_at_fault, text in rows if is_at_fault), "")

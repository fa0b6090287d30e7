"""Configuration keys of TLS and SASL, as in Kafka, for one listener or for all.

`listener.name.kafka.ssl.keystore.location` is of the KAFKA listener alone, `ssl.keystore.location` of every listener that has no
own value. A key of a mechanism has its name as well: `listener.name.kafka.plain.sasl.jaas.config`. Listeners read these keys when
a node starts; certificates that change in their files are loaded again without a restart.
"""

from __future__ import annotations

from functools import partial

from .config_key import ConfigKey, ConfigType

_B, _I, _L, _S, _LIST, _CLASS, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
)
_key = partial(ConfigKey, dynamic=False)
_dynamic = partial(ConfigKey, dynamic=True, needs_listener=True)

TLS_KEYS = (
    _key("ssl.allow.dn.changes", _B, "false"),
    _key("ssl.allow.san.changes", _B, "false"),
    _dynamic("ssl.cipher.suites", _LIST, ""),
    _dynamic("ssl.client.auth", _S, "none", choices=("required", "requested", "none")),
    _dynamic("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3"),
    _dynamic("ssl.endpoint.identification.algorithm", _S, "https"),
    _dynamic("ssl.key.password", _PASSWORD, None),
    _dynamic("ssl.keystore.certificate.chain", _PASSWORD, None),
    _dynamic("ssl.keystore.key", _PASSWORD, None),
    _dynamic("ssl.keystore.location", _S, None),
    _dynamic("ssl.keystore.password", _PASSWORD, None),
    _dynamic("ssl.keystore.type", _S, "JKS"),
    _key("ssl.principal.mapping.rules", _S, "DEFAULT"),
    _dynamic("ssl.truststore.certificates", _PASSWORD, None),
    _dynamic("ssl.truststore.location", _S, None),
    _dynamic("ssl.truststore.password", _PASSWORD, None),
    _dynamic("ssl.truststore.type", _S, "JKS"),
)
PEER_KEYS = (_key("kraftlab.node.principals", _S, "User:controller-{id};User:broker-{id}"),)
SASL_KEYS = (
    _key("connection.failed.authentication.delay.ms", _I, "100", minimum=0),
    _key("connections.max.reauth.ms", _L, "0", minimum=0),
    _dynamic("sasl.enabled.mechanisms", _LIST, "GSSAPI"),
    _dynamic("sasl.jaas.config", _PASSWORD, None),
    _key("sasl.oauthbearer.clock.skew.seconds", _I, "30", minimum=0),
    _key("sasl.oauthbearer.expected.audience", _LIST, None),
    _key("sasl.oauthbearer.expected.issuer", _S, None),
    _key("sasl.oauthbearer.jwks.endpoint.url", _S, None),
    _key("sasl.oauthbearer.scope.claim.name", _S, "scope"),
    _key("sasl.oauthbearer.sub.claim.name", _S, "sub"),
    _key("sasl.server.callback.handler.class", _CLASS, None),
    _key("sasl.server.max.receive.size", _I, "524288", minimum=1),
)
OF_LISTENERS = frozenset(key.name for key in TLS_KEYS + SASL_KEYS) - {"connection.failed.authentication.delay.ms"}
"""Names of keys that a single listener can have."""
OF_MECHANISMS = frozenset(
    key.name
    for key in SASL_KEYS
    if key.name.startswith("sasl.oauthbearer.")
    or key.name in ("sasl.jaas.config", "connections.max.reauth.ms", "sasl.server.callback.handler.class")
)
"""Names of keys that a single mechanism of a listener can have."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

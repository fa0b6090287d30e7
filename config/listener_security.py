"""Security of a node's listeners: protocol, TLS and SASL, as in Kafka's properties.

`listener.security.protocol.map` gives each listener PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; without an entry it is PLAINTEXT.
Nodes know each other by certificates, so CONTROLLER and PEER speak SSL, and require one, or PLAINTEXT. gRPC has no SASL of its
own: with SASL_SSL its callers send a user and a password, or a token. Passwords in plain text never leave the machine: such a
listener is refused unless it listens on loopback alone.

A key that no listener acts on is refused, as any other one (`unused_keys`). Errors show no value of a secret key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kraftlab.access.node_names import DEFAULT as DEFAULT_NODE_PRINCIPALS
from kraftlab.access.node_names import NodeNames
from kraftlab.access.sasl.mechanisms import OAUTHBEARER, PLAIN, check_max_reauth_ms, check_mechanisms
from kraftlab.common.endpoint import Endpoint

from .config_key import split_list
from .errors import ConfigError
from .jaas import plain_users
from .secrets import shown
from .security_keys import SASL_KEYS, TLS_KEYS
from .tls_settings import TlsSettings, for_listener, tls_settings
from .topic_configs import BROKER_KEYS, listener_key

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOL_MAP = "listener.security.protocol.map"
NODE_PRINCIPALS = "kraftlab.node.principals"
GRPC_USERS = "listener.name.grpc.users"
BETWEEN_NODES = ("CONTROLLER", "PEER")
_TLS_NAMES = frozenset(key.name for key in TLS_KEYS)
_SASL_NAMES = frozenset(key.name for key in SASL_KEYS) - {"connection.failed.authentication.delay.ms"}
_CLIENT_AUTH = "ssl.client.auth"


@dataclass(frozen=True)
class SaslConfig:
    """Logins of one listener: the mechanisms, PLAIN's passwords, and the longest session of each (0: without end)."""

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    frame_bytes_max: int
    oauthbearer: Mapping[str, str]
    """The values of sasl.oauthbearer.* that count."""


@dataclass(frozen=True)
class ListenerSecurity:
    """Security of one listener."""

    listener: str
    protocol: str = PLAINTEXT
    tls: TlsSettings | None = None
    sasl: SaslConfig | None = None


class NodeSecurity:
    """Security of all listeners of a node, and the principals of nodes."""

    def __init__(self, listeners: Mapping[str, ListenerSecurity] = MappingProxyType({}), nodes: NodeNames | None = None) -> None:
        self._listeners = listeners
        self.nodes = nodes or NodeNames()

    def of(self, listener: str) -> ListenerSecurity:
        """Return the security of a listener, by its name in upper case."""
        return self._listeners.get(listener) or ListenerSecurity(listener)


def node_security(values: Mapping[str, str], source: str, listeners: Mapping[str, Endpoint]) -> NodeSecurity:
    """Return the security of a node's listeners. ConfigError names the key and the next step."""
    protocols = _protocols(values, source)
    _check_nodes_agree(protocols, source)
    found = {}
    for name, endpoint in listeners.items():
        protocol = protocols.get(name, PLAINTEXT)
        found[name] = _security(values, source, name, protocol)
        _check_passwords_stay_here(values, found[name], endpoint, source)
    _check_used(values, found, source)
    _check_users(values, found.get("GRPC", ListenerSecurity("GRPC")), source)
    return NodeSecurity(found, _node_names(values, source))


def _node_names(values: Mapping[str, str], source: str) -> NodeNames:
    """Parse the principals of nodes. ConfigError."""
    text = values.get(NODE_PRINCIPALS, "") or DEFAULT_NODE_PRINCIPALS
    try:
        return NodeNames(text)
    except ValueError as error:
        raise ConfigError(f"{source}: {NODE_PRINCIPALS}={text}: {error}") from error


def _protocols(values: Mapping[str, str], source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in split_list(values.get(PROTOCOL_MAP, "")):
        name, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or protocol not in PROTOCOLS:
            raise ConfigError(f"{source}: {PROTOCOL_MAP}: {item!r} is not LISTENER:PROTOCOL, with one of {', '.join(PROTOCOLS)}")
        if found.setdefault(name, protocol) != protocol:
            raise ConfigError(f"{source}: {PROTOCOL_MAP} names {name} twice, as {found[name]} and {protocol}; keep one")
    return found


def _check_nodes_agree(protocols: Mapping[str, str], source: str) -> None:
    for name in BETWEEN_NODES:
        if protocols.get(name, PLAINTEXT) not in (PLAINTEXT, SSL):
            raise ConfigError(
                f"{source}: {PROTOCOL_MAP}: {name}:{protocols[name]} is not served; nodes know each other by certificates: "
                f"write {name}:{SSL}"
            )
    named = {protocols[name] for name in BETWEEN_NODES if name in protocols}
    if len(named) > 1:
        first, second = BETWEEN_NODES
        raise ConfigError(
            f"{source}: {PROTOCOL_MAP}: {first} and {second} differ, and nodes speak one protocol with each other; write "
            f"{first}:{SSL},{second}:{SSL}"
        )


def _security(values: Mapping[str, str], source: str, name: str, protocol: str) -> ListenerSecurity:
    has_sasl = protocol.startswith("SASL_")
    own = for_listener(values, name, has_sasl=has_sasl) if protocol != PLAINTEXT else {}
    tls = None
    if protocol.endswith("SSL"):
        tls = _tls(own, source, name, has_sasl=has_sasl)
    return ListenerSecurity(name, protocol, tls, _sasl(own, source, name) if has_sasl else None)


def _tls(own: dict[str, str], source: str, name: str, *, has_sasl: bool) -> TlsSettings:
    key = f"listener.name.{name.lower()}.{_CLIENT_AUTH}"
    wanted = own.get(_CLIENT_AUTH, "").strip().lower()
    if name in BETWEEN_NODES:
        if wanted not in ("", "required"):
            raise ConfigError(f"{source}: {key}={wanted}: nodes know each other by certificates; write required, or remove it")
        own = own | {_CLIENT_AUTH: "required"}
    elif name == "GRPC" and wanted == "requested":
        raise ConfigError(f"{source}: {key}=requested: gRPC's listener requires certificates or asks for none; write required")
    settings = tls_settings(own, f"{source}: listener {name}")
    if not settings.has_keystore:
        raise ConfigError(
            f"{source}: listener {name} speaks TLS and has no certificate; set ssl.keystore.location and ssl.keystore.type=PEM"
            " (kraftlab certificates issue makes one)"
        )
    return settings


def _sasl(own: Mapping[str, str], source: str, name: str) -> SaslConfig:
    prefix = f"listener.name.{name.lower()}"
    mechanisms = split_list(own.get("sasl.enabled.mechanisms", ""))
    try:
        check_mechanisms(mechanisms)
    except ValueError as error:
        raise ConfigError(f"{source}: {prefix}.sasl.enabled.mechanisms: {error}") from error

    def of(mechanism: str, key: str) -> str:
        return own.get(f"{mechanism.lower()}.{key}", own.get(key, BROKER_KEYS[key].default or "")).strip()

    passwords: Mapping[str, str] = {}
    if PLAIN in mechanisms:
        passwords = _passwords(source, prefix, of(PLAIN, "sasl.jaas.config"))
    max_reauth_ms = {}
    for mechanism in mechanisms:
        max_reauth_ms[mechanism] = int(of(mechanism, "connections.max.reauth.ms"))
        try:
            check_max_reauth_ms(max_reauth_ms[mechanism])
        except ValueError as error:
            raise ConfigError(f"{source}: {prefix}.{mechanism.lower()}.connections.max.reauth.ms: {error}") from error
    oauthbearer = {key: of(OAUTHBEARER, key) for key in _SASL_NAMES if key.startswith("sasl.oauthbearer.")}
    frame_bytes_max = int(own.get("sasl.server.max.receive.size", BROKER_KEYS["sasl.server.max.receive.size"].default or 0))
    return SaslConfig(mechanisms, passwords, max_reauth_ms, frame_bytes_max, oauthbearer if OAUTHBEARER in mechanisms else {})


def _passwords(source: str, prefix: str, jaas: str) -> Mapping[str, str]:
    """Return PLAIN's passwords by user."""
    try:
        return plain_users(jaas)
    except ConfigError as error:
        raise ConfigError(f"{source}: {prefix}.plain.sasl.jaas.config: {error}") from error


def _check_passwords_stay_here(values: Mapping[str, str], security: ListenerSecurity, endpoint: Endpoint, source: str) -> None:
    """Refuse passwords that others on the network could read."""
    if security.tls is not None or is_loopback(endpoint.host):
        return
    name = security.listener
    if security.sasl is not None and (PLAIN in security.sasl.mechanisms or OAUTHBEARER in security.sasl.mechanisms):
        which = PLAIN if PLAIN in security.sasl.mechanisms else OAUTHBEARER
        raise ConfigError(
            f"{source}: listener {name} at {endpoint} would take {which} logins in plain text; write {name}:{SASL_SSL} in "
            f"{PROTOCOL_MAP}, or enable SCRAM-SHA-512 alone"
        )
    has_users = name == "GRPC" and values.get(GRPC_USERS)
    if name in ("GRPC", "METRICS") and (has_users or security.sasl is not None):
        raise ConfigError(
            f"{source}: listener {name} at {endpoint} would take passwords in plain text; write {name}:{SASL_SSL} in "
            f"{PROTOCOL_MAP}, or listen on 127.0.0.1"
        )


def _check_users(values: Mapping[str, str], grpc: ListenerSecurity, source: str) -> None:
    if values.get(GRPC_USERS, "").strip() and grpc.protocol != PLAINTEXT:
        raise ConfigError(
            f"{source}: {GRPC_USERS} is for a PLAINTEXT listener, and GRPC speaks {grpc.protocol}; with {SASL_SSL}, write "
            "the users into listener.name.grpc.plain.sasl.jaas.config"
        )


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches a listener on that host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_used(values: Mapping[str, str], found: Mapping[str, ListenerSecurity], source: str) -> None:
    """Refuse keys of listeners that the node has not, and keys of TLS and SASL that no listener acts on."""
    for name, value in values.items():
        of_listener = listener_key(name)
        key = of_listener.key.name if of_listener is not None else name
        needs = "TLS" if key in _TLS_NAMES else "SASL" if key in _SASL_NAMES else ""
        if not needs:
            continue
        if of_listener is not None and of_listener.listener.upper() not in found:
            listeners = ", ".join(found)
            raise ConfigError(f"{source} sets {name}, and the node has no such listener; its listeners are {listeners}")
        reached = [found[of_listener.listener.upper()]] if of_listener is not None else list(found.values())
        if not any(each.tls if needs == "TLS" else each.sasl for each in reached):
            whose = f"listener {reached[0].listener} has" if of_listener is not None else "no listener has"
            negation = " no" if of_listener is not None else ""
            raise ConfigError(
                f"{source}: {name}={shown(name, value)} has no effect: {whose}{negation} {needs}; set its protocol in "
                f"{PROTOCOL_MAP}, or remove the key"
            )
        if of_listener is not None and of_listener.mechanism is not None:
            sasl = reached[0].sasl
            if sasl is None or of_listener.mechanism.upper() not in sasl.mechanisms:
                raise ConfigError(
                    f"{source} sets {name}, and the listener does not enable {of_listener.mechanism.upper()}; add it to "
                    f"listener.name.{of_listener.listener}.sasl.enabled.mechanisms, or remove the key"
                )

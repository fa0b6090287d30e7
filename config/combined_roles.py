"""Variables with KAFKA_PROCESS_ROLES=broker,controller, as tests of containers set them: the variables of two nodes.

kraftlab has no combined roles. A controller and a broker take the place of one such node. The broker has its id and serves
clients at its address. Listeners of nodes and of gRPC are on loopback, at the port of the controller listener and the three that
follow it. The broker's metrics are on loopback too, unless KAFKA_LISTENERS has an address for METRICS.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.common.endpoint import Endpoint

from .endpoints import parse_endpoint
from .environment import PREFIX, name_of
from .errors import ConfigError
from .models import METRICS_LISTENER

CONTROLLER_ID_OFFSET = 3000
"""A controller's id may not be that of a broker."""
_METRICS = Endpoint("127.0.0.1", 9404)
_REPLACED = {
    "process.roles",
    "node.id",
    "broker.id",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "controller.listener.names",
    "inter.broker.listener.name",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "metadata.log.dir",
}
_URL_SAFE = str.maketrans("+/", "-_")
"""testcontainers for Python writes the 16 bytes of a cluster id in base64 of another alphabet."""
_DEFAULT_METADATA_DIR = "/var/lib/kraftlab/metadata"


def are_in(variables: Mapping[str, str]) -> bool:
    """Return True if the variables are of a node with both roles."""
    roles = variables.get("KAFKA_PROCESS_ROLES", "")
    return {role.strip() for role in roles.split(",")} == {"broker", "controller"}


def split(variables: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the variables of the controller and of the broker. ConfigError for a cluster of several nodes, several listeners
    for clients, or one that is not PLAINTEXT.
    """
    values = {name_of(name): value.strip() for name, value in variables.items() if name.startswith(PREFIX)}
    node_id = values.get("node.id") or values.get("broker.id", "")
    if not node_id.isdecimal():
        raise ConfigError("KAFKA_PROCESS_ROLES=broker,controller needs KAFKA_NODE_ID; set it to a number, for example 1")
    if "," in values.get("controller.quorum.voters", "") + values.get("controller.quorum.bootstrap.servers", ""):
        raise ConfigError(
            "KAFKA_PROCESS_ROLES=broker,controller is for one node alone, and the variables name several controllers; start each "
            "controller and each broker as a node of its own (docs/deploy.md)"
        )
    controller, client = _ports(values)
    common = {name: value for name, value in variables.items() if name_of(name) not in _REPLACED or not name.startswith(PREFIX)}
    if cluster_id := variables.get("CLUSTER_ID"):
        common["CLUSTER_ID"] = cluster_id.translate(_URL_SAFE).rstrip("=")
    metadata_dir = values.get("metadata.log.dir") or _DEFAULT_METADATA_DIR
    controller_id = int(node_id) + CONTROLLER_ID_OFFSET
    common["KAFKA_CONTROLLER_QUORUM_VOTERS"] = f"{controller_id}@127.0.0.1:{controller}"
    peers = f"PEER://127.0.0.1:{controller + 3},GRPC://127.0.0.1:{controller + 2}"
    metrics = _endpoints(values, "listeners").get(METRICS_LISTENER, _METRICS)
    of_broker = {
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_NODE_ID": node_id,
        "KAFKA_LISTENERS": f"{peers},KAFKA://{client},METRICS://{metrics}",
        "KAFKA_METADATA_LOG_DIR": f"{metadata_dir}/broker",
    }
    if advertised := _endpoints(values, "advertised.listeners").get(_client_name(values)):
        of_broker["KAFKA_ADVERTISED_LISTENERS"] = f"{peers},KAFKA://{advertised}"
    of_controller = {
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_NODE_ID": str(controller_id),
        "KAFKA_LISTENERS": f"CONTROLLER://127.0.0.1:{controller},GRPC://127.0.0.1:{controller + 1}",
        "KAFKA_METADATA_LOG_DIR": f"{metadata_dir}/controller",
    }
    without_logs = {name: value for name, value in common.items() if name not in ("KAFKA_LOG_DIRS", "KAFKA_LOG_DIR")}
    return {"controller": without_logs | of_controller, "broker": common | of_broker}


def _ports(values: Mapping[str, str]) -> tuple[int, Endpoint]:
    """Return the port of the controller listener, and the endpoint for clients."""
    listeners = _endpoints(values, "listeners")
    controller = listeners.get(_controller_name(values))
    if controller is None:
        raise ConfigError(
            f"KAFKA_LISTENERS has no listener {_controller_name(values)} for the controller; add one, for example "
            f"{_controller_name(values)}://:9094, and name it in KAFKA_CONTROLLER_LISTENER_NAMES"
        )
    client = listeners[_client_name(values)]
    return controller.port, client if client.host else Endpoint("0.0.0.0", client.port)


def _controller_name(values: Mapping[str, str]) -> str:
    return values.get("controller.listener.names") or "CONTROLLER"


def _client_name(values: Mapping[str, str]) -> str:
    """Return the name of the listener for clients."""
    names = [name for name in _endpoints(values, "listeners") if name not in (_controller_name(values), METRICS_LISTENER)]
    if len(names) > 1:
        names = [name for name in names if name != values.get("inter.broker.listener.name")]
    if len(names) != 1:
        found = f"not {len(names)} ({', '.join(names)})" if names else "and there is none"
        raise ConfigError(
            f"a broker of kraftlab has one listener for clients, {found}; leave one in KAFKA_LISTENERS beside those that "
            "KAFKA_CONTROLLER_LISTENER_NAMES and KAFKA_INTER_BROKER_LISTENER_NAME name"
        )
    protocols = [item.strip() for item in values.get("listener.security.protocol.map", "").split(",")]
    protocol = next((item for item in protocols if item.startswith(f"{names[0]}:")), f"{names[0]}:PLAINTEXT").partition(":")[2]
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"KAFKA_PROCESS_ROLES=broker,controller serves PLAINTEXT, not {protocol}; for TLS and logins start a controller and "
            "a broker as nodes of their own (docs/deploy.md)"
        )
    return names[0]


def _endpoints(values: Mapping[str, str], key: str) -> dict[str, Endpoint]:
    found = {}
    for item in filter(None, values.get(key, "").split(",")):
        name, _, address = item.strip().partition("://")
        endpoint = parse_endpoint(address)
        if endpoint is None:
            raise ConfigError(f"{key}: {item.strip()!r} is not NAME://host:port with a port from 1 to 65535")
        found[name] = endpoint
    return found

"""Checks of broker configs that depend on the broker, besides the type of each key (KIP-226).

A broker's configs are changed at that broker, and the cluster's defaults at any broker, since only a broker knows its
server.properties. It sends the file's values along when it forwards the call, and these checks compare with them. The configs of
a broker that is down are changed at any broker (KAFKA-13392). Such a change, and one that is sent to a controller directly, is
not compared with a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.config_key import split_list
from kraftlab.config.effective import BrokerValues
from kraftlab.config.topic_configs import ineffective_broker_value, validate_broker_value
from kraftlab.metadata.features import MIN_INSYNC_REPLICAS
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import ForwardingBroker

from .resources import node_id_of

_THREADS = ("num.replica.fetchers",)
_ENDPOINT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*://\S*:[0-9]{1,5}")


def is_down(name: str, image: MetadataImage) -> bool:
    """Return True if the name is the id of a registered broker that is fenced."""
    broker = image.cluster.brokers.get(int(name)) if name.isdecimal() else None
    return broker is not None and broker.fenced


def check_named(name: str, broker: ForwardingBroker | None) -> None:
    """A broker changes only its own configs and the cluster's. ApiError INVALID_REQUEST."""
    if not name:
        return
    node_id = node_id_of(name, "Node id")
    if broker is not None and node_id != broker.node_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.node_id}, but received {name}")


def check_value(name: str, value: str, values: BrokerValues, *, is_known: bool, is_for_all: bool) -> None:
    """Check a new value, and compare it with the current ones if those are known. `is_for_all`: the value is not a broker's own.
    ApiError INVALID_REQUEST for a wrong value, INVALID_CONFIG for a value without effect.
    """
    refusal = validate_broker_value(name, value)
    if refusal is None and is_known:
        refusal = _fault_of_listeners(name, value) or _fault_of_threads(name, value, values)
        refusal = refusal or _fault_of_directories(name, value, values)
    if refusal is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, refusal)
    refusal = ineffective_broker_value(name, value, is_for_all=is_for_all)
    if refusal is not None:
        raise ApiError(ErrorCode.INVALID_CONFIG, refusal)


def check_eligible_leaders(name: str, changes: Mapping[str, str | None]) -> None:
    """While eligible leader replicas are on, all brokers must have the same min.insync.replicas. ApiError INVALID_CONFIG."""
    if MIN_INSYNC_REPLICAS not in changes:
        return
    if name:
        text = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, text)
    if changes[MIN_INSYNC_REPLICAS] is None:
        text = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, text)


def _fault_of_listeners(name: str, value: str) -> str | None:
    if name != "listeners":
        return None
    bad = next((item for item in split_list(value) if not _ENDPOINT.fullmatch(item)), None)
    return (
        None if bad is None else f"Error creating broker listeners from '[{value}]': Unable to parse {bad} to a broker endpoint"
    )


def _fault_of_threads(name: str, value: str, values: BrokerValues) -> str | None:
    if name not in _THREADS:
        return None
    wanted, current = int(value), int(values.value(name) or 1)
    beginning = f"Dynamic thread count update validation failed for {name}={wanted}, value should "
    if wanted < current / 2:
        return f"{beginning}be at least half the current value {current}"
    if wanted > current * 2:
        return f"{beginning}not be greater than double the current value {current}"
    return None


def _fault_of_directories(name: str, value: str, values: BrokerValues) -> str | None:
    if name != "cordoned.log.dirs" or value.strip() == "*":
        return None
    directories = split_list(values.static.get("log.dirs") or values.static.get("log.dir") or "")
    missing = [item for item in split_list(value) if item not in directories]
    if not missing:
        return None
    return (
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
        f"{', '.join(missing)}; the broker has {', '.join(directories)}"
    )

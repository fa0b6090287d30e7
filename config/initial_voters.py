"""First voters of the quorum, for formatting a node's metadata directory (KIP-853).

Static voters need nothing here. With voters in the log a controller is formatted as the only voter, as one of a list that is
the same on each of them, or without a vote, to be added later. The list has every voter's directory id, so each of them can
write the same first voter set before any of them has started.
"""

from __future__ import annotations

import re

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import Uuid, from_text, is_reserved, random_uuid
from kraftlab.quorum.core.types import Voter, VoterSet

from . import meta_properties
from .endpoints import parse_endpoint
from .errors import ConfigError
from .models import CONTROLLER_LISTENER, ControllerConfig, NodeConfig

_FORM = "id@host:port:directory-id"
_INITIAL_CONTROLLER = re.compile(r"(?P<id>[0-9]{1,9})@(?P<endpoint>.+):(?P<directory>[A-Za-z0-9_-]+)")


class InitialVoters(msgspec.Struct, frozen=True):
    """`directory_id`: id of the metadata directory, None for a random one. `voters`: voters of the bootstrap checkpoint, None
    for no checkpoint.

    `is_named`: a person chose the directory id.
    """

    directory_id: Uuid | None = None
    voters: VoterSet | None = None
    is_named: bool = False


def parse_initial_controllers(text: str) -> VoterSet:
    """Parse the voters of `id@host:port:directory-id,…`. ConfigError names the faulty entry."""
    voters: list[Voter] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        voter = _parse(item)
        for other in voters:
            if other.key.node_id == voter.key.node_id:
                raise ConfigError(f"--initial-controllers names controller {voter.key.node_id} twice; give each an id of its own")
            if other.key.directory_id == voter.key.directory_id:
                raise ConfigError(
                    f"--initial-controllers gives controllers {other.key.node_id} and {voter.key.node_id} the same directory id; "
                    "make one for each with: kraftlab storage random-uuid"
                )
        voters.append(voter)
    if not voters:
        raise ConfigError(f"--initial-controllers names no controller; write {_FORM},… for example 3000@127.0.0.1:19093:…")
    return VoterSet.of(voters)


def _parse(item: str) -> Voter:
    match = _INITIAL_CONTROLLER.fullmatch(item)
    endpoint = parse_endpoint(match["endpoint"]) if match else None
    if match is None or endpoint is None or not endpoint.host:
        raise ConfigError(f"--initial-controllers: {item!r} is not {_FORM}")
    try:
        directory_id = from_text(match["directory"])
    except ValueError as error:
        raise ConfigError(f"--initial-controllers: {item!r}: {error}; make one with: kraftlab storage random-uuid") from None
    if is_reserved(directory_id):
        raise ConfigError(f"--initial-controllers: {item!r}: the directory id is a reserved one; use another")
    return Voter(ReplicaKey(int(match["id"]), directory_id), {CONTROLLER_LISTENER: endpoint})


def choose(
    config: NodeConfig, *, standalone: bool = False, initial_controllers: str | None = None, no_initial_controllers: bool = False
) -> InitialVoters:
    """Evaluate the three options of `storage format` for this node. ConfigError if they contradict its server.properties."""
    given = [
        name
        for name, is_given in (
            ("--standalone", standalone),
            ("--initial-controllers", initial_controllers is not None),
            ("--no-initial-controllers", no_initial_controllers),
        )
        if is_given
    ]
    if len(given) > 1:
        raise ConfigError(f"{given[1]} is not allowed with {given[0]}; give one of them")
    is_controller = "controller" in config.process_roles
    if not is_controller and given and not no_initial_controllers:
        raise ConfigError(f"You can only use {given[0]} on a controller.")
    if not config.is_dynamic and given and not no_initial_controllers:
        raise ConfigError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If you "
            "want to use dynamic quorum, please remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
            "instead."
        )
    if standalone:
        own = Voter(ReplicaKey(config.node_id, random_uuid()), voter_endpoints(config))
        return InitialVoters(own.key.directory_id, VoterSet((own,)))
    if initial_controllers is not None:
        return _one_of(config, parse_initial_controllers(initial_controllers))
    if is_controller and config.is_dynamic and not no_initial_controllers:
        raise ConfigError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    return InitialVoters()


def own_voter(config: ControllerConfig) -> Voter:
    """Entry of a formatted controller in a voter set. ConfigError if its metadata directory is not formatted for it."""
    directory = config.metadata_log_dir
    meta = meta_properties.verify((directory,), config.node_id, config.source)[directory]
    return Voter(ReplicaKey(config.node_id, meta.directory_id), voter_endpoints(config))


def voter_endpoints(config: NodeConfig) -> dict[str, Endpoint]:
    """Endpoints of a controller in a voter set: its listener for other nodes."""
    return {CONTROLLER_LISTENER: config.advertised_listeners[CONTROLLER_LISTENER]}


def _one_of(config: NodeConfig, voters: VoterSet) -> InitialVoters:
    own = voters.get(config.node_id)
    if own is None:
        raise ConfigError(
            f"node {config.node_id} is not among --initial-controllers ({','.join(map(str, voters.ids()))}); name it there, or "
            "format it with --no-initial-controllers and add it to the running quorum later"
        )
    named, listens = own.endpoints[CONTROLLER_LISTENER], config.advertised_listeners[CONTROLLER_LISTENER]
    if named.port != listens.port:
        raise ConfigError(
            f"--initial-controllers says that controller {config.node_id} listens on {named}, but {config.source} says "
            f"{listens}; make them agree"
        )
    return InitialVoters(own.key.directory_id, voters, is_named=True)

"""The configuration of a node from environment variables, by the rules of Apache Kafka's image: `kraftlab node --environment`.

Theory of operation. `KAFKA_LOG_DIRS` is log.dirs: `_` stands for a dot, `__` for `_`, `___` for `-`. A server.properties at
`MOUNTED` is read first, and variables win. A variable without effect, because its key is unknown or unused, is a warning:
containers have more variables than ours. For every other value the rules of a file hold. A variable that ends with `_FILE`
names a file with the value, for secrets; names of keys come first (`KAFKA_LOG_FILE` is log.file).

`CLUSTER_ID` lets a node format its empty directories, and no others, before it starts. Without it a disk that was not mounted
would become a new, empty one.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from . import initial_voters, meta_properties, properties, storage
from .errors import ConfigError
from .initial_voters import InitialVoters
from .models import NodeConfig, build_any
from .topic_configs import BROKER_KEYS, broker_key
from .unused_keys import unused_fault

PREFIX = "KAFKA_"
MOUNTED = Path("/mnt/shared/config/server.properties")
SOURCE = "the environment"
_FILE = "_FILE"
_SEPARATORS = {"-": "___", "_": "__", ".": "_"}
_HOST = re.compile(r"://(\[[^\]]*\]|[^:,]*):")

logger = logging.getLogger("kraftlab.config")


class EnvironmentValues(NamedTuple):
    """Keys and values of server.properties, and what a person should know of variables that have no effect."""

    values: dict[str, str]
    warnings: list[str]


def variable_of(name: str) -> str:
    """The environment variable of a key."""
    return PREFIX + "".join(_SEPARATORS.get(character, character.upper()) for character in name)


def name_of(variable: str) -> str:
    """The key of an environment variable. Two separators beside each other in a key have no variable of their own."""
    text = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return text.replace("...", "-").replace("..", "_")


def read(variables: Mapping[str, str], mounted: Path | None = MOUNTED) -> EnvironmentValues:
    """Read the mounted file, if there is one, and the variables. ConfigError."""
    found = EnvironmentValues(properties.load(mounted) if mounted is not None and mounted.exists() else {}, [])
    without_key: list[str] = []
    given: dict[str, str] = {}
    for variable, value in sorted(variables.items()):
        if not variable.startswith(PREFIX):
            continue
        name, value = _resolve(variable, value)
        key = broker_key(name)
        if key is None:
            without_key.append(variable)
        elif key.fault(value) is None and (fault := unused_fault(key, value)) is not None:
            found.warnings.append(f"{variable}: {fault}")
        elif name in given:
            raise ConfigError(f"{SOURCE} sets {name} twice, the second time as {variable}; keep one of the variables")
        else:
            given[name] = value
    if without_key:
        found.warnings.append(f"these variables have no effect: {', '.join(map(_with_advice, without_key))}")
    found.values.update(given)
    _derive_listeners(given, found.values)
    return found


def _resolve(variable: str, value: str) -> tuple[str, str]:
    """Return key and value of a variable. ConfigError for a file that cannot be read."""
    name = name_of(variable)
    if not variable.endswith(_FILE) or broker_key(name) is not None:
        return name, value.strip()
    name = name_of(variable.removesuffix(_FILE))
    if broker_key(name) is None:
        return name_of(variable), value
    try:
        return name, Path(value).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{variable}={value}: the file with the value of {name} cannot be read: {reason}") from None


def _with_advice(variable: str) -> str:
    near = difflib.get_close_matches(name_of(variable), BROKER_KEYS, n=1, cutoff=0.85)
    return f"{variable} (did you mean {variable_of(near[0])}?)" if near else variable


def _derive_listeners(given: Mapping[str, str], values: dict[str, str]) -> None:
    """Let a broker listen on every address at the ports that it advertises, if it is not told where. ConfigError."""
    if values.get("process.roles") == "controller":
        if given.get("advertised.listeners"):
            raise ConfigError(
                "KAFKA_ADVERTISED_LISTENERS is not supported on a controller; give its listeners a host that other nodes know: "
                "KAFKA_LISTENERS=CONTROLLER://HOST:PORT,GRPC://HOST:PORT"
            )
    elif not values.get("listeners") and values.get("advertised.listeners"):
        values["listeners"] = _HOST.sub("://0.0.0.0:", values["advertised.listeners"])


def load(variables: Mapping[str, str], mounted: Path | None = MOUNTED) -> NodeConfig:
    """Return the configuration of the node that the variables describe. ConfigError."""
    return build_any(read(variables, mounted).values, SOURCE)


def prepare(variables: Mapping[str, str], config: NodeConfig, mounted: Path | None = MOUNTED) -> None:
    """Log which variables have no effect, and format empty directories if CLUSTER_ID is set. ConfigError."""
    for warning in read(variables, mounted).warnings:
        logger.warning("%s", warning)
    if variables.get("CLUSTER_ID"):
        for line in format_empty(config, variables["CLUSTER_ID"], variables.get("INITIAL_CONTROLLERS")):
            logger.info("%s", line)


def format_empty(config: NodeConfig, cluster_id: str, initial_controllers: str | None) -> list[str]:
    """Format the node's directories that are absent or empty, and return the lines to print. ConfigError if one that is not
    formatted holds anything, and for directories of another node or cluster. Nothing happens while a directory cannot be read:
    the start names it, and a broker can do without it.
    """
    try:
        unformatted = [directory for directory in config.all_directories() if not _is_formatted(directory)]
        used = next((directory for directory in unformatted if not _is_empty(directory)), None)
    except OSError:
        return []
    if used is not None:
        raise ConfigError(
            f"{used} is not formatted and not empty, and CLUSTER_ID formats empty directories only; give the node an "
            "empty one, or format this one with: kraftlab storage format"
        )
    if config.metadata_log_dir in unformatted:
        initial = _first_voters(config, initial_controllers)
        return storage.format(config, cluster_id, ignore_formatted=True, initial=initial)
    held = meta_properties.read(config.metadata_log_dir)
    if held is not None and held.cluster_id != cluster_id:
        raise ConfigError(
            f"{config.metadata_log_dir} belongs to cluster {held.cluster_id}, not to CLUSTER_ID={cluster_id}; correct the "
            "variable, or give the node an empty directory"
        )
    return storage.format(config, cluster_id, ignore_formatted=True) if unformatted else []


def _is_formatted(directory: Path) -> bool:
    return (directory / meta_properties.FILE_NAME).exists()


def _is_empty(directory: Path) -> bool:
    return not directory.exists() or all(path.name == "lost+found" for path in directory.iterdir())


def _first_voters(config: NodeConfig, initial_controllers: str | None) -> InitialVoters:
    if config.process_roles != ("controller",) or not config.is_dynamic:
        return initial_voters.choose(config)
    if not initial_controllers:
        raise ConfigError(
            f"{config.metadata_log_dir} is empty, and the first voters of the quorum are unknown; set "
            "INITIAL_CONTROLLERS=ID@HOST:PORT:DIRECTORY-ID,… too, the same on each controller (a directory id: kraftlab storage "
            "random-uuid), or KAFKA_CONTROLLER_QUORUM_VOTERS=ID@HOST:PORT,… instead of bootstrap servers"
        )
    return initial_voters.choose(config, initial_controllers=initial_controllers)

"""`meta.properties`: the identity of a data directory (KIP-631, KIP-858).

Version 1: cluster id, node id, and a directory id of its own. Formatting writes it once, atomically: a temporary file is
written and fsynced, renamed, and the directory is fsynced. A node refuses to start on a directory of another node.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from kraftlab.common.uuids import Uuid, from_text, is_reserved, random_uuid, to_text

from . import properties
from .errors import ConfigError
from .private_files import PRIVATE_DIRECTORY, PRIVATE_FILE
from .regular_files import clear_place

FILE_NAME = "meta.properties"
_VERSION = "1"


class MetaProperties(msgspec.Struct, frozen=True):
    """Identity of one data directory."""

    cluster_id: str
    node_id: int
    directory_id: Uuid

    def as_dict(self) -> dict[str, int | str]:
        """Output of `storage info`, by name."""
        return {
            "cluster.id": self.cluster_id,
            "directory.id": to_text(self.directory_id),
            "node.id": self.node_id,
            "version": int(_VERSION),
        }


class Owner(NamedTuple):
    """The node that a directory belongs to. `source`: path of its configuration."""

    node_id: int
    cluster_id: str
    source: str = "FILE"


def read(directory: Path, owner: Owner | None = None) -> MetaProperties | None:
    """Return the directory's identity, None if it is not formatted. ConfigError for a malformed file, with the lines of this
    `owner`; OSError for a bad disk.
    """
    path = directory / FILE_NAME
    try:
        values = _values(path)
        if values is None:
            return None
        if not values:
            raise ConfigError(f"{path} is empty")
        if values.get("version") != _VERSION:
            raise ConfigError(f"{path}: version={values.get('version', '')}: expected {_VERSION}")
        meta = MetaProperties(values["cluster.id"], int(values["node.id"]), from_text(values["directory.id"]))
        if is_reserved(meta.directory_id):
            raise ConfigError(f"{path}: directory.id={values['directory.id']} is reserved")
    except KeyError as error:
        raise ConfigError(f"{path} does not set {error.args[0]}; {_lines(owner)}") from None
    except ConfigError as error:
        raise ConfigError(f"{error}; {_lines(owner)}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; {_lines(owner)}") from None
    return meta


def _lines(owner: Owner | None) -> str:
    """Next step for a damaged file."""
    cluster, node = ("CLUSTER", "NODE") if owner is None else (owner.cluster_id, owner.node_id)
    return (
        f"restore the file, or write these lines into it: version={_VERSION}, cluster.id={cluster}, node.id={node}, "
        "directory.id=ID, with the old ID (kraftlab metadata-quorum describe --replication shows those of metadata directories); "
        "a log directory without the last line gets a new id"
    )


def _mount_it(directory: Path, owner: Owner, is_log_dir: bool) -> str:
    """Next step for a directory that may be the place where a disk was mounted."""
    online = f"run kraftlab log-dirs --online {directory} --broker {owner.node_id}, or start the broker again"
    joins = "" if is_log_dir else " (a controller that joins others: and --no-initial-controllers)"
    return (
        f"is its disk mounted? Mount it, then {online if is_log_dir else 'start the node again'}. To begin with a new, empty "
        f"disk, first run: {format_command(owner)}{joins}"
    )


def format_command(owner: Owner) -> str:
    return f"kraftlab storage format --cluster-id {owner.cluster_id} --config {owner.source} --ignore-formatted"


def check_formatted(directory: Path, owner: Owner, *, is_log_dir: bool = True) -> None:
    """ConfigError for a directory without the file: it may be the place where a disk was mounted."""
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory; {_mount_it(directory, owner, is_log_dir)}")
    if not (directory / FILE_NAME).exists():
        raise ConfigError(f"{directory} is not formatted; {_mount_it(directory, owner, is_log_dir)}")


def read_own(directory: Path, owner: Owner, *, is_log_dir: bool = True) -> MetaProperties:
    """Return the identity of one of the node's directories. ConfigError if it is not formatted or of another node; as `read`."""
    check_formatted(directory, owner, is_log_dir=is_log_dir)
    meta = read(directory, owner)
    if meta is None:
        raise ConfigError(f"{directory} is no longer formatted; {_mount_it(directory, owner, is_log_dir)}")
    if meta.cluster_id != owner.cluster_id:
        raise ConfigError(
            f"{directory} belongs to another cluster: to node {meta.node_id} of cluster {meta.cluster_id}, but this is node "
            f"{owner.node_id} of cluster {owner.cluster_id}; mount the disk of this node there, and leave that one to its cluster"
        )
    if meta.node_id != owner.node_id:
        raise ConfigError(
            f"{directory} belongs to node {meta.node_id} of this cluster, but this is node {owner.node_id}; mount the disk of "
            f"this node there, or correct node.id or log.dirs in {owner.source}"
        )
    return meta


def _values(path: Path) -> dict[str, str] | None:
    try:
        os.stat(path)
    except FileNotFoundError:
        return None
    return properties.load(path)


def add_missing_directory_id(directory: Path) -> bool:
    """Give a directory that was formatted before directories had ids (KIP-858) an id, durably. Return True if it got one.

    OSError, ConfigError as `read`.
    """
    path = directory / FILE_NAME
    values = _values(path)
    if values is None or values.get("version") != _VERSION or "directory.id" in values:
        return False
    write_durably(path, properties.dumps({**values, "directory.id": to_text(random_uuid())}))
    return True


def write(directory: Path, meta: MetaProperties) -> None:
    """Write the file durably. The directory is created if it is missing. OSError."""
    text = properties.dumps(
        {
            "version": _VERSION,
            "cluster.id": meta.cluster_id,
            "node.id": str(meta.node_id),
            "directory.id": to_text(meta.directory_id),
        }
    )
    write_durably(directory / FILE_NAME, text)


def write_durably(path: Path, content: str | bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a file that is whole or missing after a crash. Its directory is created if it is missing. OSError.

    Only the owner can read a new file, without another `mode`, and a new directory; a file that is replaced keeps its mode.
    """
    directory = path.parent
    directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    temporary = directory / (path.name + ".tmp")
    clear_place(temporary)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else mode
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    for parent in (directory, directory.parent):
        descriptor = os.open(parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def verify(directories: Iterable[Path], node_id: int, source: str) -> dict[Path, MetaProperties]:
    """Return the identities of a node's directories. They must be formatted, agree on the cluster and belong to `node_id`.

    ConfigError names the first directory that does not. A directory that cannot be read at all raises OSError: the caller
    decides whether the node can run without it.
    """
    found: dict[Path, MetaProperties] = {}
    for directory in directories:
        meta = read(directory)
        if meta is None:
            raise ConfigError(
                f"{directory} is not formatted; run: {format_command(Owner(node_id, 'CLUSTER', source))} (a controller that "
                "joins others: and --no-initial-controllers)"
            )
        if meta.node_id != node_id:
            raise ConfigError(
                f"{directory} was formatted for node {meta.node_id}, but {source} is of node "
                f"{node_id}; correct node.id or the directory"
            )
        for path, other in found.items():
            if other.cluster_id != meta.cluster_id:
                raise ConfigError(
                    f"{directory} belongs to cluster {meta.cluster_id}, but {path} to "
                    f"{other.cluster_id}; correct the directories of {source}"
                )
            if other.directory_id == meta.directory_id:
                raise ConfigError(f"{directory} and {path} have the same directory.id; one is a copy: format one of them again")
        found[directory] = meta
    return found

"""Formatting data directories and looking at them (`kafka-storage`): pure results, the command line prints them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from kraftlab.metadata.features import METADATA_VERSION_NAME
from kraftlab.metadata.uuids import random_uuid, to_text

from . import meta_properties
from .errors import ConfigError
from .meta_properties import MetaProperties
from .models import NodeConfig

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class StorageInfo(msgspec.Struct, frozen=True):
    """What `storage info` found: the directories, one line of metadata if any is formatted, and what is wrong."""

    directories: tuple[Path, ...]
    metadata: MetaProperties | None
    problems: tuple[str, ...]


def random_cluster_id() -> str:
    return to_text(random_uuid())


def check_cluster_id(cluster_id: str) -> None:
    """ConfigError unless it can be a cluster id."""
    if not _CLUSTER_ID.fullmatch(cluster_id) or cluster_id.startswith("-"):
        raise ConfigError(
            f"{cluster_id!r} is not a cluster id: at most 64 letters, digits, '_' and '-'; make one "
            f"with: kraftlab storage random-uuid"
        )


def format(config: NodeConfig, cluster_id: str, ignore_formatted: bool = False) -> list[str]:
    """Formats the node's directories; the lines to print. ConfigError if one is formatted and that is not to be ignored, or
    belongs to another node or cluster, or cannot be written."""
    check_cluster_id(cluster_id)
    directories = config.all_directories()
    fresh: list[Path] = []
    for directory in directories:
        meta = _read(directory)
        if meta is None:
            fresh.append(directory)
        elif not ignore_formatted:
            raise ConfigError(
                f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore "
                f"this directory and format the others."
            )
        elif meta.node_id != config.node_id or meta.cluster_id != cluster_id:
            raise ConfigError(
                f"{directory} was formatted for node {meta.node_id} of cluster {meta.cluster_id}, not "
                f"for node {config.node_id} of "
                f"{cluster_id}; correct the configuration or remove the directory"
            )
    if not fresh:
        return ["All of the log directories are already formatted."]
    lines = []
    for directory in fresh:
        kind = "metadata directory" if directory == config.metadata_log_dir else "data directory"
        try:
            meta_properties.write(directory, MetaProperties(cluster_id, config.node_id, random_uuid()))
        except OSError as error:
            raise ConfigError(
                f"cannot format {directory}: {error.strerror}; check the path, its permissions and free space"
            ) from error
        lines.append(f"Formatting {kind} {directory} with metadata.version {METADATA_VERSION_NAME}.")
    return lines


def info(config: NodeConfig) -> StorageInfo:
    """What the node's directories hold. Problems are lines of text; none means that the node can start."""
    found: list[Path] = []
    metas: list[MetaProperties] = []
    problems: list[str] = []
    for directory in config.all_directories():
        if not directory.is_dir():
            problems.append(f"{directory} does not exist")
            continue
        found.append(directory)
        try:
            meta = _read(directory)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if meta is None:
            problems.append(f"{directory} is not formatted")
            continue
        if meta.node_id != config.node_id:
            problems.append(f"{directory} was formatted for node {meta.node_id}, not {config.node_id}")
        if metas and meta.cluster_id != metas[0].cluster_id:
            problems.append(f"{directory} belongs to cluster {meta.cluster_id}, not {metas[0].cluster_id}")
        metas.append(meta)
    return StorageInfo(tuple(found), metas[0] if metas else None, tuple(problems))


def _read(directory: Path) -> MetaProperties | None:
    try:
        return meta_properties.read(directory)
    except OSError as error:
        raise ConfigError(f"cannot read {directory}: {error.strerror}; check its permissions") from error

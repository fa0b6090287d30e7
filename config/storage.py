"""Formatting and inspection of data directories (`kafka-storage`). The results are values; the command line prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kraftlab.common.uuids import Uuid, random_uuid, to_text
from kraftlab.metadata.features import METADATA_VERSION, METADATA_VERSION_NAME, level_text, metadata_version_from
from kraftlab.metadata.records import UserScramCredential
from kraftlab.quorum.core.batch import KRaftVoters
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.quorum.storage.bootstrap import read_bootstrap, write_bootstrap
from kraftlab.quorum.storage.election_store import ElectionStateStore
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity, partition_directory
from kraftlab.quorum.storage.recovery import analyse
from kraftlab.quorum.storage.repair import read_repair

from . import bootstrap_levels, bootstrap_scram, meta_properties
from .errors import ConfigError
from .initial_voters import InitialVoters
from .meta_properties import MetaProperties, Owner
from .models import CONTROLLER_LISTENER, NodeConfig

CONTROLLER_ROLE = "controller"
SCRAM = metadata_version_from("3.5-IV2")
"""The first metadata.version with SCRAM credentials."""
_VOTER_DIRECTORY = "dynamic metadata voter directory"
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class QuorumInfo(msgspec.Struct, frozen=True):
    """State of the quorum in a metadata directory.

    `voters`: the newest in the log, committed or not, or the formatted ones; None if they are static or unknown. `generation`:
    how often a lost majority was forced. `epoch`: the newest epoch that the node has seen. `repair`: the damage that is being
    repaired, with the offset up to which it is; None if there is none.
    """

    voters: VoterSet | None
    generation: int
    epoch: int
    log_start_offset: int
    log_end_offset: int
    log_epoch: int
    """Epoch of the log's last record. Of two logs the one with the higher epoch is newer, then the longer one."""
    repair: str | None = None

    def as_dict(self) -> dict[str, int | str]:
        """Output of `storage info`, by name."""
        values: dict[str, int | str] = {
            "epoch": self.epoch,
            "generation": self.generation,
            "kraft.version": 0 if self.voters is None else 1,
            "log.end": self.log_end_offset,
            "log.epoch": self.log_epoch,
            "log.start": self.log_start_offset,
        }
        if self.voters is not None:
            values["voters"] = voters_text(self.voters)
        return values


def voters_text(voters: VoterSet) -> str:
    """The voters in the form of --initial-controllers."""
    return ",".join(map(_voter_text, voters.voters))


def _voter_text(voter: Voter) -> str:
    endpoint = voter.endpoints.get(CONTROLLER_LISTENER, "?")
    return f"{voter.key.node_id}@{endpoint}:{to_text(voter.key.directory_id)}"


class StorageInfo(msgspec.Struct, frozen=True):
    """Result of `storage info`: the directories, the node's identity in one of them, the quorum in the metadata directory, and
    problems.
    """

    directories: tuple[Path, ...]
    metadata: MetaProperties | None
    problems: tuple[str, ...]
    quorum: QuorumInfo | None = None


def random_cluster_id() -> str:
    return to_text(random_uuid())


def check_cluster_id(cluster_id: str) -> None:
    """ConfigError for a text that is not a valid cluster id."""
    if not _CLUSTER_ID.fullmatch(cluster_id) or cluster_id.startswith("-"):
        raise ConfigError(
            f"{cluster_id!r} is not a cluster id: at most 64 letters, digits, '_' and '-'; make one "
            f"with: kraftlab storage random-uuid"
        )


def format(
    config: NodeConfig,
    cluster_id: str,
    ignore_formatted: bool = False,
    initial: InitialVoters = InitialVoters(),
    levels: Mapping[str, int] | None = None,
    credentials: Sequence[UserScramCredential] = (),
) -> list[str]:
    """Format the node's directories and return the lines to print. ConfigError if a directory is formatted and
    `ignore_formatted` is false, if it belongs to another node or cluster, or if it cannot be written. `levels`: features of
    a new cluster, None for the newest. `credentials`: users of a new cluster.
    """
    check_cluster_id(cluster_id)
    _check_scram(config, levels, credentials)
    fresh = []
    for directory in config.all_directories():
        meta = _read(directory)
        if meta is None:
            fresh.append(directory)
        elif not ignore_formatted:
            raise ConfigError(
                f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore this directory and format the "
                "others."
            )
        else:
            _check_ignored(config, directory, meta, cluster_id, initial)
    if not fresh:
        return ["All of the log directories are already formatted."]
    lines = []
    version = METADATA_VERSION_NAME if levels is None else level_text(METADATA_VERSION, levels[METADATA_VERSION])
    for directory in fresh:
        is_metadata = directory == config.metadata_log_dir
        try:
            if is_metadata and initial.voters is not None:
                # Comes before meta.properties: a formatted directory always has its voters.
                write_bootstrap(RealFileSystem(), str(directory), cluster_id, initial.voters)
            if is_metadata and levels is not None:
                bootstrap_levels.write(directory, dict(levels))
            if is_metadata and credentials:
                bootstrap_scram.write(directory, credentials)
            directory_id = initial.directory_id if is_metadata else None
            meta_properties.write(directory, MetaProperties(cluster_id, config.node_id, directory_id or random_uuid()))
        except (OSError, StorageError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"cannot format {directory}: {reason}; check the path, its permissions and free space") from error
        kind = "data directory" if not is_metadata else "metadata directory" if initial.voters is None else _VOTER_DIRECTORY
        lines.append(f"Formatting {kind} {directory} with metadata.version {version}.")
    return lines


def _check_scram(config: NodeConfig, levels: Mapping[str, int] | None, credentials: Sequence[UserScramCredential]) -> None:
    """ConfigError for credentials that no cluster would get."""
    if not credentials:
        return
    if config.process_roles != (CONTROLLER_ROLE,):
        raise ConfigError(f"{config.source} is of a broker, and users come from the controllers; format these with --add-scram")
    if levels is not None and levels[METADATA_VERSION] < SCRAM:
        raise ConfigError(f"SCRAM is only supported in metadata.version {level_text(METADATA_VERSION, SCRAM)} or later.")


def _check_ignored(config: NodeConfig, directory: Path, meta: MetaProperties, cluster_id: str, initial: InitialVoters) -> None:
    """ConfigError if a formatted directory contradicts the request."""
    if meta.node_id != config.node_id or meta.cluster_id != cluster_id:
        raise ConfigError(
            f"{directory} was formatted for node {meta.node_id} of cluster {meta.cluster_id}, not for node {config.node_id} of "
            f"{cluster_id}; correct the configuration or remove the directory"
        )
    if directory == config.metadata_log_dir and initial.is_named and initial.directory_id != meta.directory_id:
        raise ConfigError(
            f"{directory} was formatted with the directory id {to_text(meta.directory_id)}, so it is not the voter that "
            "--initial-controllers names; leave it as it is, or remove it if its cluster has never run"
        )


class Unusable(msgspec.Struct, frozen=True):
    """Directories that a node cannot use, with the reasons. `blocks`: the node cannot start without them."""

    reasons: dict[Path, str]
    blocks: bool


def unusable(config: NodeConfig, cluster_id: str) -> Unusable:
    """Check a stopped node's directories as its start does."""
    reasons: dict[Path, str] = {}
    by_id: dict[Uuid, Path] = {}
    has_twins = False
    owner = Owner(config.node_id, cluster_id, config.source)
    for directory in config.all_directories():
        try:
            if directory in config.log_dirs:
                meta_properties.add_missing_directory_id(directory)
            meta = meta_properties.read_own(directory, owner, is_log_dir=directory != config.metadata_log_dir)
            twin = by_id.setdefault(meta.directory_id, directory)
            if twin != directory:
                has_twins = True
                reasons[directory] = f"{directory} and {twin} have the same directory.id; one is a copy: format one of them again"
        except ConfigError as error:
            reasons[directory] = str(error)
        except OSError as error:
            reasons[directory] = f"{error.filename or directory}: {error.strerror}"
    has_no_log_dir = bool(config.log_dirs) and reasons.keys() >= set(config.log_dirs)
    return Unusable(reasons, config.metadata_log_dir in reasons or has_no_log_dir or has_twins)


def generation(config: NodeConfig) -> int:
    """Number of forced elections of the quorum that this node's metadata directory has recorded; 0 without a record."""
    try:
        meta = _read(config.metadata_log_dir)
    except ConfigError:
        return 0
    if meta is None:
        return 0
    store = ElectionStateStore(RealFileSystem(), str(config.metadata_log_dir), LogIdentity(meta.cluster_id, meta.directory_id))
    try:
        store.load()
    except StorageError:
        return 0
    return store.generation


def info(config: NodeConfig) -> StorageInfo:
    """Inspect the node's directories. Problems are lines of text; without problems the node can start."""
    found: list[Path] = []
    metas: list[MetaProperties] = []
    quorum: QuorumInfo | None = None
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
        if directory == config.metadata_log_dir:
            try:
                quorum = _quorum_info(directory, meta, problems)
            except StorageError as error:
                problems.append(str(error))
    return StorageInfo(tuple(found), metas[0] if metas else None, tuple(problems), quorum)


def _quorum_info(directory: Path, meta: MetaProperties, problems: list[str]) -> QuorumInfo:
    """Read every file and change none. Damage is added to `problems`. StorageError."""
    file_system, partition = RealFileSystem(), partition_directory(str(directory))
    identity = LogIdentity(meta.cluster_id, meta.directory_id)
    bootstrap = read_bootstrap(file_system, str(directory), meta.cluster_id)
    store = ElectionStateStore(file_system, str(directory), identity)
    election = store.load() if Path(partition).is_dir() else None
    repair = read_repair(file_system, partition, identity)
    found = analyse(file_system, partition, identity._replace(generation=store.generation))
    try:
        voters = found.latest_voters()
    finally:
        found.close()
    if found.damage and repair is None:
        problems.append(found.damage)
    index = found.walk.batches
    return QuorumInfo(
        voters or next((record.voters for record in bootstrap if isinstance(record, KRaftVoters)), None),
        store.generation,
        election.epoch if election is not None else 0,
        index.start_offset,
        index.end_offset,
        index.last_epoch,
        f"up to offset {repair.repair_until}, until then the node does not vote: {repair.reason}" if repair is not None else None,
    )


def _read(directory: Path) -> MetaProperties | None:
    try:
        return meta_properties.read(directory)
    except OSError as error:
        raise ConfigError(f"cannot read {directory}: {error.strerror}; check its permissions") from error

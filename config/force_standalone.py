"""`metadata-quorum force-standalone`: give up a lost majority, on the files of one stopped controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.types import VoterSet
from kraftlab.quorum.storage.directory_lock import DirectoryLock
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.quorum.storage.standalone import ForcedReport, force_standalone, plan_standalone

from .errors import ConfigError
from .initial_voters import own_voter
from .meta_properties import verify
from .models import ControllerConfig


class StandaloneController:
    """One controller with a locked directory. ConfigError names the obstacle; nothing was changed then."""

    def __init__(self, config: ControllerConfig) -> None:
        self.config = config
        self._directory = str(config.metadata_log_dir)
        meta = verify((config.metadata_log_dir,), config.node_id, config.source)[config.metadata_log_dir]
        self._identity = LogIdentity(meta.cluster_id, meta.directory_id)

    @property
    def cluster_id(self) -> str:
        return self._identity.cluster_id

    @property
    def key(self) -> ReplicaKey:
        """Key of the surviving controller."""
        return ReplicaKey(self.config.node_id, self._identity.directory_id)

    @property
    def _static_voters(self) -> VoterSet | None:
        return None if self.config.is_dynamic else self.config.voters

    def plan(self) -> ForcedReport:
        """Report of what `carry_out` will do; changes nothing."""
        try:
            return plan_standalone(RealFileSystem(), self._directory, self._identity, self._static_voters)
        except StorageError as error:
            raise ConfigError(str(error)) from error

    def carry_out(self) -> ForcedReport:
        """Make this controller the only voter of the next generation. An attempt that a crash interrupted is completed."""
        now_ms = wall_clock_ms()
        voter = own_voter(self.config)
        try:
            return force_standalone(RealFileSystem(), self._directory, self._identity, voter, now_ms, self._static_voters)
        except StorageError as error:
            raise ConfigError(str(error)) from error


@contextmanager
def forcing(config: ControllerConfig) -> Iterator[StandaloneController]:
    """Lock the directory meanwhile. ConfigError if the controller runs, or if its directory is not formatted."""
    found = StandaloneController(config)
    with ExitStack() as stack:
        try:
            stack.enter_context(DirectoryLock(str(config.metadata_log_dir)))
        except StorageError as error:
            raise ConfigError(str(error)) from error
        yield found

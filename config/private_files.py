"""Modes of files that hold secrets: passwords in server.properties, keys of SCRAM users in the metadata log and its snapshots."""

from __future__ import annotations

import logging
import os
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
"""Modes of new files and directories. Those that exist keep theirs: a person may have chosen them."""

logger = logging.getLogger("kraftlab.config")


def is_open_to_all(path: Path) -> bool:
    """Return True if every user of this machine can read the file. OSError."""
    parents = path.absolute().parents
    return bool(os.stat(path).st_mode & 0o004) and all(os.stat(parent).st_mode & 0o001 for parent in parents)


def warn_of_readable_secrets(config: str, metadata_dir: Path) -> None:
    """Log a warning for a node's server.properties, and for its metadata log, that every user of this machine can read."""
    log = next((path for path in sorted(metadata_dir.glob("__cluster_metadata-0/*.log")) if path.is_file()), None)
    for path, advice in ((Path(config), f"chmod 600 {config}"), (log, f"chmod -R go= {metadata_dir}")):
        try:
            if path is not None and is_open_to_all(path):
                logger.warning("%s can hold passwords or keys, and every user of this machine can read it; run: %s", path, advice)
        except OSError:
            continue  # the node itself reports a file that it needs and cannot read

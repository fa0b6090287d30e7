"""The directory of files that can be made again: the launcher of Java, the archives of classes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def directory(environ: Mapping[str, str]) -> Path:
    """Return `$XDG_CACHE_HOME/kraftlab`, by default `~/.cache/kraftlab`, or else one of this user's own under /tmp. OSError if
    neither can be used.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    wanted = Path(environ.get("XDG_CACHE_HOME") or Path(home, ".cache")) / "kraftlab"
    with contextlib.suppress(OSError):
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK | os.X_OK):
            return wanted
    return _private(Path(tempfile.gettempdir(), f"kraftlab-{os.getuid()}"))


def _private(path: Path) -> Path:
    """Create a directory that no other user could have filled: its files are executed."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if path.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(13, "is not a directory of this user alone; set XDG_CACHE_HOME to one", str(path))
    return path

"""A directory, FIFO, socket or loop of links in the place of a file of a metadata directory: never a wait, and an error with its
name.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage import DiskFailed, MetadataStore, RealFileSystem
from kraftlab.quorum.storage.directory_lock import FILE_NAME as LOCK
from kraftlab.quorum.storage.directory_lock import DirectoryLock
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.identity import PARTITION_DIRECTORY
from kraftlab.quorum.storage.survey import survey_file

from .conftest import IDENTITY


def a_directory(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)


def a_loop_of_links(path: Path) -> None:
    path.symlink_to(path)


ODD_THINGS = (a_directory, os.mkfifo, a_socket, a_loop_of_links)
SNAPSHOT = "00000000000000000020-0000000001.checkpoint"
FILES = ("quorum-state", "quorum-state.tmp", "committed", "repair", "00000000000000000000.log", SNAPSHOT, f"{SNAPSHOT}.part")


def opened(directory: Path) -> MetadataStore:
    return MetadataStore.open(RealFileSystem(), str(directory), IDENTITY.cluster_id, IDENTITY.directory_id)


@pytest.mark.parametrize("put", ODD_THINGS)
@pytest.mark.parametrize("name", FILES)
def test_a_store_opens_without_it_or_names_it(tmp_path: Path, builder: Any, name: str, put: Callable[[Path], None]) -> None:
    store = opened(tmp_path)
    builder.append(store.log, builder.log(12, stamp_behind=1))
    store.log.flush()
    store.election_store.store(ElectionState(1, -1, None))
    store.close()
    path = tmp_path / PARTITION_DIRECTORY / name
    if path.exists():
        path.unlink()
    put(path)
    try:
        store = opened(tmp_path)
    except StorageError as error:
        assert str(path) in str(error)
        assert "move it away" in str(error)
    else:
        assert store.log.end_offset == 12
        store.close()


@pytest.mark.parametrize("put", ODD_THINGS)
def test_the_lock_is_named(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / LOCK)
    with pytest.raises(DiskFailed, match=rf"cannot open .*{LOCK}: .*move it away"), DirectoryLock(str(tmp_path)):
        pass


@pytest.mark.parametrize("put", ODD_THINGS)
def test_readers_of_a_stopped_nodes_files_do_not_wait(tmp_path: Path, put: Callable[[Path], None]) -> None:
    path = tmp_path / "00000000000000000000.log"
    put(path)
    with contextlib.suppress(OSError):
        assert RealFileSystem().read(str(path)) == b""
    with contextlib.suppress(OSError):
        assert not list(survey_file(str(path)).entries)

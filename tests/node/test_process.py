"""A node's process: generations of the cluster, fatal errors, the limit of open files."""

from __future__ import annotations

import logging
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kraftlab.node.process import run_to_end, through_generations
from kraftlab.quorum.driver.errors import GenerationOver
from kraftlab.quorum.storage.errors import FsyncFailed
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity, partition_directory
from kraftlab.quorum.storage.metadata_store import MetadataStore

IDENTITY = LogIdentity("node-test", bytes([7]) * 16)


def node(ends: list[Exception | None]) -> Callable[[], Awaitable[None]]:
    """A node whose runs end like this, one after the other."""

    async def serve() -> None:
        error = ends.pop(0)
        if error is not None:
            raise ExceptionGroup("a nursery", [error])

    return serve


async def test_an_observer_discards_its_copy_in_the_newer_generation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = MetadataStore.open(RealFileSystem(), str(tmp_path), *IDENTITY[:2])
    store.close()
    partition = Path(partition_directory(str(tmp_path)))
    for name in ("00000000000000000010.log", "00000000000000000010-0000000001.checkpoint", "repair"):
        (partition / name).write_bytes(b"history")
    ends: list[Exception | None] = [GenerationOver("forced", 3, is_expendable=True), None]
    await through_generations(node(ends), IDENTITY, str(tmp_path))
    assert not ends
    assert "follows generation 3 from the start" in caplog.text
    assert RealFileSystem().names(str(partition)) == ["quorum-state"]
    again = MetadataStore.open(RealFileSystem(), str(tmp_path), *IDENTITY[:2])
    assert (again.identity.generation, again.log.end_offset) == (3, 0)
    again.close()


async def test_a_node_that_never_votes_always_discards_its_copy(tmp_path: Path) -> None:
    ends: list[Exception | None] = [GenerationOver("forced", 3, is_expendable=False), None]
    await through_generations(node(ends), IDENTITY, str(tmp_path), never_votes=True)
    assert not ends


async def test_a_generation_over_with_unique_data_ends_the_process_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("as it was")
    ends: list[Exception | None] = [GenerationOver("the quorum was forced; format it anew", 3, is_expendable=False)]

    async def serve() -> None:
        await through_generations(node(ends), IDENTITY, str(tmp_path))

    with pytest.raises(SystemExit, match=r"^Error: the quorum was forced; format it anew$"):
        await run_to_end(str(tmp_path), serve)
    assert (tmp_path / "kept").read_text() == "as it was"


async def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup):
        await through_generations(node([KeyError("a bug")]), IDENTITY, str(tmp_path))


async def test_a_disk_that_fails_in_two_places_at_once_ends_the_process_with_one_line(tmp_path: Path) -> None:
    async def serve() -> None:
        snapshots = ExceptionGroup("a nursery within", [FsyncFailed("fsync of a directory failed")])
        raise ExceptionGroup("a nursery", [FsyncFailed("fsync of a segment failed"), snapshots])

    with pytest.raises(SystemExit, match=r"^Error: fsync of a segment failed$"):
        await run_to_end(str(tmp_path), serve)


async def test_a_bug_beside_a_fatal_error_is_shown(tmp_path: Path) -> None:
    async def serve() -> None:
        raise ExceptionGroup("a nursery", [FsyncFailed("fsync of a segment failed"), KeyError("a bug")])

    with pytest.raises(ExceptionGroup):
        await run_to_end(str(tmp_path), serve)


async def test_a_node_may_use_as_many_files_as_the_system_allows_it(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen: list[tuple[int, int]] = []

    async def serve() -> None:
        seen.append(resource.getrlimit(resource.RLIMIT_NOFILE))

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1] // 2, limits[1]))
        await run_to_end(str(tmp_path), serve)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert seen == [(limits[1], limits[1])]

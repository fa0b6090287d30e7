"""The file of a trace keeps every line, also of a process that is killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.quorum.driver import trace_file
from kraftlab.quorum.driver.trace_file import TraceFile


class Inline:
    """Threads that run work at once."""

    async def run(self, work: Callable[[], None]) -> None:
        work()


KILLED = """
import os, sys, trio
from kraftlab.quorum.driver.trace_file import TraceFile
class Inline:
    async def run(self, work):
        work()
file = TraceFile(sys.argv[1], Inline())
trio.run(file.open)
file.write('{"life":1}\\n')
os._exit(0)
"""


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "PART_BYTES", 4096)


async def opened(path: Path) -> TraceFile:
    file = TraceFile(str(path), Inline())  # type: ignore[arg-type]
    await file.open()
    return file


async def test_lines_of_a_killed_process_stay_and_the_next_one_goes_on_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    await trio.run_process([sys.executable, "-c", KILLED, str(path)])
    assert path.read_bytes().rstrip(b"\0") == b'{"life":1}\n'
    assert path.stat().st_size > 1000, "zeros are behind the line"
    second = await opened(path)
    second.write('{"life":2}\n')
    second.close()
    assert path.read_text() == '{"life":1}\n{"life":2}\n'


async def test_a_line_can_cross_parts_and_lines_without_room_are_counted(
    small_parts: None, tmp_path: Path, caplog: Any, autojump_clock: object
) -> None:
    path = tmp_path / "trace.ndjson"
    file = await opened(path)
    lines = ["x" * 2999 + "\n", "y" * 2999 + "\n", "z" * 2999 + "\n"]
    for line in lines:
        file.write(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.run)
        await trio.sleep(1)
        file.write("end\n")
        file.close()
    assert path.read_text() == lines[0] + lines[1] + "end\n", "two parts have room for two of these"
    assert "1 lines of the trace" in caplog.text


async def test_what_cannot_hold_a_trace_costs_one_line_in_the_log(tmp_path: Path, caplog: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "no" / "such"):
        caplog.clear()
        file = await opened(place)
        file.write("lost\n")
        file.close()
        assert [record.message.partition(":")[0] for record in caplog.records] == ["the trace ends"]


async def test_two_nodes_do_not_write_one_file(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "trace.ndjson"
    first, second = await opened(path), await opened(path)
    second.write('{"node":2}\n')
    first.write('{"node":1}\n')
    second.close()
    first.close()
    assert path.read_text() == '{"node":1}\n'
    assert "another node writes it; put {node} into kraftlab.trace.file" in caplog.text


async def test_a_file_that_holds_something_else_stays_as_it_is(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\n")
    file = await opened(path)
    file.write('{"node":1}\n')
    file.close()
    assert path.read_text() == "node.id=1\n"
    assert "holds something else than a trace" in caplog.text


async def test_lines_go_on_behind_one_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    path.write_text('{"life":1}\n{"li')
    file = await opened(path)
    file.write('{"life":2}\n')
    file.close()
    assert path.read_text() == '{"life":1}\n{"li\n{"life":2}\n'

"""Odd things in the place of a file: named, never waited for, and nothing of a person's is deleted."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.config.meta_properties import write_durably
from kraftlab.config.regular_files import OddFile, odd_thing_at, open_regular, read_regular


def a_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)


ODD_THINGS: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a named pipe (FIFO)": os.mkfifo,
    "a socket": a_socket,
    "Too many levels of symbolic links": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", ODD_THINGS)
def test_an_odd_thing_is_named_for_readers_and_writers(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    ODD_THINGS[kind](path)
    assert kind in odd_thing_at(path) and "remove what is in its place" in odd_thing_at(path)
    with pytest.raises(OddFile) as refused:
        read_regular(path, 100)
    assert kind in str(refused.value)
    with pytest.raises(OddFile) as refused:
        open_regular(path, os.O_RDWR | os.O_CREAT)
    assert kind in str(refused.value)


@pytest.mark.parametrize("kind", ODD_THINGS)
def test_a_temporary_file_is_written_where_an_odd_thing_was(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    ODD_THINGS[kind](tmp_path / "file.tmp")
    write_durably(path, "text")
    assert path.read_text() == "text"
    assert len(list(tmp_path.glob("set-aside.*"))) == (kind == "a directory")


def test_a_regular_or_missing_file_is_not_odd(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert odd_thing_at(path) == ""
    path.write_text("text")
    assert odd_thing_at(path) == ""
    os.close(open_regular(path, os.O_RDONLY))
    path.with_name("link").symlink_to(path)
    assert odd_thing_at(path.with_name("link")) == ""
    path.unlink()
    assert odd_thing_at(path.with_name("link")).startswith("a symbolic link to nothing")

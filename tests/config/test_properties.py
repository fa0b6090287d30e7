from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftlab.config import properties
from kraftlab.config.errors import ConfigError


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# comment\nlog.dirs = /a,\\\n   /b\nbroker.rack: r1\nempty=\npath=/daten/größe\n", encoding="utf-8")
    assert properties.load(path) == {"log.dirs": "/a,/b", "broker.rack": "r1", "empty": "", "path": "/daten/größe"}


def test_a_key_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"f sets node\.id twice; keep one of the lines"):
        properties.parse(b"node.id=1\nnode.id=2\n", "f")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_byte_order_mark_is_no_part_of_the_first_key(encoding: str) -> None:
    """Java takes it as one, and loses the first line without a word."""
    assert properties.parse("a=é\nb=1\n".encode(encoding), "f") == {"a": "é", "b": "1"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_file_in_another_encoding_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(ConfigError, match=r"f is not a properties file: it is UTF-.* text.*; save it as UTF-8"):
        properties.parse("node.id=1\n".encode(encoding), "f")


@pytest.mark.parametrize("data", [b"\0\1\2", b"a=\\uXYZW"])
def test_a_malformed_properties_file_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="f is not a properties file"):
        properties.parse(data, "f")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nope"):
        properties.load(tmp_path / "nope")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        properties.load(tmp_path)


def test_a_written_file_is_read_back() -> None:
    values = {"listeners": "GRPC://[::1]:9", "x": " lead=ing", "path": "/größe\\b"}
    assert properties.parse(properties.dumps(values).encode(), "f") == {key: value.strip() for key, value in values.items()}


def test_a_file_that_is_not_regular_or_gigantic_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    fifo, directory, loop, giant = (tmp_path / name for name in ("fifo", "directory", "loop", "giant"))
    os.mkfifo(fifo)
    directory.mkdir()
    loop.symlink_to(loop)
    giant.touch()
    os.truncate(giant, 100 << 30)
    for path, fault in ((fifo, "named pipe"), (directory, "a directory"), (loop, "symbolic links"), (giant, "bytes long")):
        with pytest.raises(ConfigError, match=f"cannot read {path}: it is .*{fault}"):
            properties.load(path)


def test_a_pipe_of_a_shell_can_be_read() -> None:
    """`--config <(command)`."""
    reader, writer = os.pipe()
    os.write(writer, b"node.id=4\n")
    os.close(writer)
    try:
        assert properties.load(f"/dev/fd/{reader}") == {"node.id": "4"}
    finally:
        os.close(reader)

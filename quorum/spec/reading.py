"""Reads traces: one NDJSON file, several of the nodes of one cluster, or the directory of a run."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .actions import BeyondSpecification, Line, cut
from .form import Form
from .merge import merged

NAMES = ("*.ndjson", "*.ndjson.gz")


def read(paths: Sequence[Path]) -> list[Line]:
    """Return the lines of one trace in order. A directory stands for the traces in it. BeyondSpecification."""
    files = {path: _lines(path) for path in _files(paths)}
    if len(files) == 1:
        return next(iter(files.values()))
    of_node: dict[int, Path] = {}
    for path, lines in files.items():
        node, *more = dict.fromkeys(line["node"] for line in lines) or (None,)
        if more:
            raise BeyondSpecification(f"{path} has the lines of several nodes: it is a trace of its own, check it alone")
        if node is not None and of_node.setdefault(node, path) != path:
            raise BeyondSpecification(f"{of_node[node]} and {path} are both of node {node}: give one file of each node")
    return merged([lines for lines in files.values() if lines])


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted({file for name in NAMES for file in path.glob(f"**/{name}")}) if path.is_dir() else [path]
        if not inside:
            raise BeyondSpecification(
                f"{path} has no trace in it: no file is called {' or '.join(NAMES)}. Runs have one that were played with "
                "`kraftlab chaos test --trace`, or with --world simulated"
            )
        found += inside
    return found


def _lines(path: Path) -> list[Line]:
    data = _data(path).rstrip(b"\0")  # zeros are behind the lines of a node that was killed
    written = data.splitlines()
    decode, form = msgspec.json.Decoder(dict).decode, Form()
    lines: list[Line] = []
    for number, text in enumerate(written, 1):
        try:
            line = decode(text)
        except (ValueError, RecursionError) as error:
            if number == len(written) > 1 and not data.endswith(b"\n"):  # its node was killed while it wrote
                return cut(lines, len(lines) - 1)
            raise BeyondSpecification(f"line {number} of {path} is not a JSON object: {error}") from error
        try:
            lines.append(form.read(line))
        except ValueError as error:
            raise BeyondSpecification(f"line {number} of {path} is not what a node writes: {error}") from error
    if not lines:
        raise BeyondSpecification(f"{path} is empty: a trace begins with a node that boots")
    return lines


def _data(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BeyondSpecification(f"cannot read {path}: {error.strerror}") from error
    try:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (EOFError, OSError, zlib.error) as error:
        raise BeyondSpecification(f"{path} is damaged: {error}") from error

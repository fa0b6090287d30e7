"""Reads traces: one NDJSON file, several of the nodes of one cluster, or the directory of a run."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from .actions import BeyondSpecification, Line, cut
from .merge import merged

NAMES = ("*.ndjson", "*.ndjson.gz")
Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]


class _Form(msgspec.Struct):
    """The fields that every line has, with what TLC can count with."""

    node: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    step: Annotated[int, msgspec.Meta(ge=0)]
    time_us: int
    event: str
    state: str
    epoch: Number
    leader: Number
    voted: Number
    end: Number
    hw: Number
    durable: Number
    config: list[Number]


def read(paths: Sequence[Path]) -> list[Line]:
    """Return the lines of one trace in order. A directory stands for the traces in it. OSError, BeyondSpecification."""
    files = [_lines(path) for path in _files(paths)]
    if len(files) == 1:
        return files[0]
    for path, lines in zip(_files(paths), files, strict=True):
        if len({line.get("node") for line in lines}) > 1:
            raise BeyondSpecification(f"{path} has the lines of several nodes: it is a trace of its own, check it alone")
    return merged([lines for lines in files if lines])


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
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError) as error:
            raise BeyondSpecification(f"{path} is damaged: {error}") from error
    written = data.rstrip(b"\0").splitlines()  # zeros are behind the lines of a node that was killed
    decode = msgspec.json.Decoder(dict).decode
    lines: list[Line] = []
    for number, text in enumerate(written, 1):
        try:
            line = decode(text)
        except msgspec.MsgspecError as error:
            if number == len(written) > 1:  # cut off: its node was killed while it wrote
                return cut(lines, len(lines) - 1)
            raise BeyondSpecification(f"line {number} of {path} is not a JSON object: {error}") from error
        try:
            msgspec.convert(line, _Form)
        except msgspec.ValidationError as error:
            raise BeyondSpecification(f"line {number} of {path} is not what a node writes: {error}") from error
        lines.append(line)
    if not lines:
        raise BeyondSpecification(f"{path} is empty: a trace begins with a node that boots")
    return lines

"""Reads traces: one NDJSON file, several of the nodes of one cluster, or the directory of a run."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from .actions import BeyondSpecification, Line, cut
from .merge import merged

NAMES = ("*.ndjson", "*.ndjson.gz")


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
    lines = list(_decoded(path, written))
    return lines if len(lines) == len(written) else cut(lines, len(lines) - 1)


def _decoded(path: Path, lines: Sequence[bytes]) -> Iterable[Line]:
    """Yield the lines as objects. The last may be cut off: its node was killed while it wrote."""
    decode = msgspec.json.Decoder(dict).decode
    for number, line in enumerate(lines, 1):
        try:
            yield decode(line)
        except msgspec.MsgspecError as error:
            if number < len(lines):
                raise BeyondSpecification(f"line {number} of {path} is not a JSON object: {error}") from error

"""Logs that are packed with xz, as recordings and attachments are: unpacked for as long as a command reads them."""

from __future__ import annotations

import hashlib
import lzma
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from kraftlab.config.meta_properties import FILE_NAME as META_PROPERTIES

from ..errors import CorruptInput
from ..storage import uris
from .survey import PARTITION_DIRECTORY, is_log_name

SUFFIX = ".xz"


def unpacked(places: Iterable[str], directory: Path) -> list[str]:
    """Return the places; a packed file, or a directory with a packed log, is unpacked below `directory`. CorruptInput for a
    damaged file.
    """
    return [_unpacked(place, directory) for place in places]


def _unpacked(place: str, directory: Path) -> str:
    uri = uris.normalised(place)
    if not uris.is_of_this_machine(uri):
        return place
    path = uris.local_path(uri)
    if path.is_file() and path.suffix == SUFFIX:
        return str(_unpack(path, directory))
    for parent in (path / PARTITION_DIRECTORY, path):
        files = sorted(parent.iterdir()) if parent.is_dir() else []
        if any(is_log_name(file.name) for file in files):
            return place
        packed = [file for file in files if file.suffix == SUFFIX and is_log_name(file.stem)]
        if packed:
            return str({_unpack(file, directory).parent for file in packed}.pop())
    return place


def _unpack(path: Path, directory: Path) -> Path:
    """Unpack a file into a directory for its own one, with the identity of the log."""
    target = directory / hashlib.sha256(str(path.parent.absolute()).encode()).hexdigest()[:16]
    target.mkdir(exist_ok=True)
    for identity in _identities(path):
        shutil.copyfile(identity, target / META_PROPERTIES)
    try:
        with lzma.open(path) as packed, (target / path.stem).open("wb") as file:
            shutil.copyfileobj(packed, file)
    except (lzma.LZMAError, EOFError) as error:
        raise CorruptInput(f"{path} cannot be unpacked: {error}; copy it again, or give the other files") from None
    return target / path.stem


def _identities(path: Path) -> Iterator[Path]:
    """Yield the log's `meta.properties`, the nearest last."""
    for parent in (path.parent.parent, path.parent):
        if (parent / META_PROPERTIES).is_file():
            yield parent / META_PROPERTIES

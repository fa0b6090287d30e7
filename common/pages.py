"""The look of pages, which reports of several rooms share: a style sheet, the theme, lanes, and files that are replaced whole."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path


@cache
def assets_of(package: str) -> Mapping[str, bytes]:
    """Return the style sheets and scripts in the folder `assets` of a package, by file name."""
    folder = resources.files(package) / "assets"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith((".css", ".js"))}


def shared_assets() -> Mapping[str, bytes]:
    """Return the style sheet of all pages, the theme and the drawing of lanes, by file name."""
    return assets_of("kraftlab.common")


def write_assets(folder: Path, assets: Mapping[str, bytes]) -> None:
    """Write the assets that are missing or different. OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in assets.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            replace_file(path, data)


def replace_file(path: Path, data: bytes) -> Path:
    """Write a file atomically. OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path

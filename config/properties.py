"""Java properties files, the format of `server.properties` and `meta.properties`."""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Iterable

import javaproperties

from .errors import ConfigError
from .regular_files import OddFile, read_regular
from .utf8 import OtherEncoding, without_mark

BYTES_MAX = 1 << 20


def load(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return keys and values of a file, in its order. ConfigError if it cannot be read or names a key twice."""
    file = pathlib.Path(path)
    try:
        data = file.read_bytes() if file.is_relative_to("/dev") else read_regular(file, BYTES_MAX)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {file}; give the path of a properties file") from None
    except OddFile as error:
        raise ConfigError(f"cannot read {file}: it is {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}; check the path and its permissions") from error
    return parse(data, str(file))


def parse(data: bytes, name: str) -> dict[str, str]:
    """Return keys and values of a file's bytes: UTF-8, with or without a byte-order mark, otherwise Latin-1. `name` is for the
    error's text. ConfigError; it quotes no value, since any may be a password.
    """
    try:
        text = _decoded(without_mark(data))
    except OtherEncoding as error:
        raise ConfigError(f"{name} is not a properties file: it is {error}") from None
    if "\0" in text:
        raise ConfigError(f"{name} is not a properties file: it holds zero bytes")
    try:
        pairs = list(javaproperties.loads(text, object_pairs_hook=list))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(
            f"{name} is not a properties file: {error}; write unicode escapes as \\u and four hex digits"
        ) from error
    return _unique(pairs, name)


def _unique(pairs: Iterable[tuple[str, str]], name: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in pairs:
        if key in values:
            raise ConfigError(f"{name} sets {key} twice; keep one of the lines")
        values[key] = value.strip()
    return values


def edited(data: bytes, values: dict[str, str]) -> str:
    """Return the text of a file (that can be parsed) with other values. Comments, order and unchanged lines stay."""
    file = javaproperties.PropertiesFile.loads(_decoded(without_mark(data)))
    for key in [key for key in file if key not in values]:
        del file[key]
    for key, value in values.items():
        if file.get(key, None) is None or file[key].strip() != value:
            file[key] = value
    return file.dumps()


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def dumps(values: dict[str, str]) -> str:
    """Text of a properties file with these values, in order."""
    text = io.StringIO()
    javaproperties.dump(values, text, timestamp=False)
    return text.getvalue()

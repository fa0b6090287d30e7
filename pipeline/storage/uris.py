"""Places in three spellings: for people, for Arrow's file systems, and for Spark.

People give paths or URIs. Workers read logs through `pyarrow.fs`, which uses `s3://`; Spark writes Parquet through Hadoop, which
uses `s3a://`. A path of this machine means another disk on each worker elsewhere, so it is refused unless the master is local.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from ..errors import WrongUse
from ..session.settings import Master

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FOR_ARROW = {"s3a": "s3", "s3n": "s3"}
_FOR_SPARK = {"s3": "s3a", "s3n": "s3a"}


def normalised(place: str | Path) -> str:
    """Return a URI: paths become `file:///…`, Hadoop's names of S3 become `s3://`, a slash at the end is removed. WrongUse if it
    is empty.
    """
    text = str(place)
    scheme, separator, rest = text.partition("://")
    if separator:
        if scheme == "file":
            return f"file://{quote(unquote(urlsplit(text).path)).rstrip('/') or '/'}"
        return f"{_FOR_ARROW.get(scheme, scheme)}://{rest.rstrip('/')}"
    if not text:
        raise WrongUse("an empty path is not a place; give a directory or a URI such as s3://bucket/lake")
    path = text.removeprefix("file:") if text.startswith("file:/") else text
    return f"file://{quote(str(Path(path).expanduser().absolute()))}"


def for_spark(uri: str) -> str:
    """Return the spelling for Spark's readers and writers. Hadoop does not accept escapes in paths."""
    if is_of_this_machine(uri):
        return f"file://{local_path(uri)}"
    scheme, _, rest = uri.partition("://")
    return f"{_FOR_SPARK.get(scheme, scheme)}://{rest}"


def is_of_this_machine(uri: str) -> bool:
    return uri.startswith("file://")


def local_path(uri: str) -> Path:
    """Return the path of a `file://` URI."""
    return Path(unquote(urlsplit(uri).path))


def joined(uri: str, *names: str) -> str:
    """Return a place below another."""
    return "/".join((uri.rstrip("/"), *names))


def name_of(uri: str) -> str:
    """Return the last part."""
    return unquote(uri.rstrip("/").rpartition("/")[2])


def shown(uri: str) -> str:
    """Return the spelling for people: files of this machine as paths."""
    return str(local_path(uri)) if is_of_this_machine(uri) else uri


def file_system(uri: str) -> tuple[FileSystem, str]:
    """Return Arrow's file system and the path in it. WrongUse for a scheme that Arrow does not know."""
    from pyarrow import ArrowInvalid, fs

    if is_of_this_machine(uri):
        return fs.LocalFileSystem(), str(local_path(uri))
    try:
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(uri)
    except ArrowInvalid as error:
        raise WrongUse(f"{uri} cannot be read: {error}; known are paths, s3://, gs:// and hdfs://") from None
    return found


def check_reach(uri: str, master: Master) -> None:
    """Raise WrongUse if each worker of this master would see a disk of its own there."""
    if is_of_this_machine(uri) and not master.shares_files:
        raise WrongUse(
            f"{shown(uri)} is on this machine's disk, which workers of {master.url} do not share; give a place that all of them "
            "see (s3://, hdfs://); or --shared-files, if they all mount it; or run with --master 'local[*]'"
        )

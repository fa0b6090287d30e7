"""A person names a log directory by its path, or by the last parts of it."""

from __future__ import annotations

import re

import pytest

from kraftlab.config.directories import named_directory
from kraftlab.config.errors import ConfigError

DIRECTORIES = ("/data/d0", "/data/d1", "/disk1/kafka-logs", "/disk2/kafka-logs", "/data/old/d1-0")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("d1", "/data/d1"),
        ("d1/", "/data/d1"),
        ("/data/d1", "/data/d1"),
        ("/data/d1//", "/data/d1"),
        ("data/d1", "/data/d1"),
        ("disk2/kafka-logs", "/disk2/kafka-logs"),
        ("d1-0", "/data/old/d1-0"),
    ],
)
def test_a_directory_is_found_by_its_path_or_its_last_parts(name: str, path: str) -> None:
    assert named_directory(DIRECTORIES, name) == path


def test_a_whole_path_is_meant_although_another_ends_like_it() -> None:
    assert named_directory(("/d1", "/data/d1"), "/d1") == "/d1"


@pytest.mark.parametrize("name", ["d2", "", "/", "1", "/data", "d1/orders-0", "../d1", "D1"])
def test_a_name_of_no_directory_is_answered_with_all(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"there is no log directory {name!r}; there are /data/d0, /data/d1, ")):
        named_directory(DIRECTORIES, name)


def test_a_name_of_several_directories_is_answered_with_them() -> None:
    with pytest.raises(ConfigError, match="may be each of /disk1/kafka-logs, /disk2/kafka-logs; give more of the path"):
        named_directory(DIRECTORIES, "kafka-logs")

"""Spark Connect, without a context, a JVM or RDDs: every room but the session's works over it."""

from __future__ import annotations

import ast
from pathlib import Path

import kraftlab.pipeline

FORBIDDEN = frozenset({"sparkContext", "SparkContext", "_jvm", "_jsc", "_jdf", "_sc", "_jsparkSession", "rdd", "parallelize"})
ROOT = Path(kraftlab.pipeline.__file__).parent
ALLOWED = ROOT / "session"


def names_in(source: str) -> set[str]:
    """Names and attributes that code reads, and what it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
    return found


def test_no_room_but_the_sessions_names_what_connect_does_not_have() -> None:
    files = [path for path in ROOT.rglob("*.py") if not path.is_relative_to(ALLOWED)]
    assert len(files) > 30
    guilty = {str(path.relative_to(ROOT)): names_in(path.read_text()) & FORBIDDEN for path in files}
    assert {path: names for path, names in guilty.items() if names} == {}


def test_the_check_sees_what_it_looks_for() -> None:
    source = "from pyspark import SparkContext\nspark.sparkContext.parallelize([1])\nframe.rdd.count()\n"
    assert names_in(source) & FORBIDDEN == {"SparkContext", "sparkContext", "parallelize", "rdd"}

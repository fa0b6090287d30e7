"""Counts sentences that keep readers out: docstrings that open with a relative clause, banned phrases, and unclear class names.

`make lint` runs this file. It fails above the ceilings, which are only ever lowered. `plain_english.py ROOM` lists the places in
one room, as path:line. A row of `banned_phrases.txt` that ends with a number has that ceiling, in sources and documents together.

Docstrings are those of modules, classes, functions and attributes. Phrases are looked for in comments and string literals of
sources, and in the lines of Markdown files. Tests are not counted.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

OPENINGS_MAX = 0
"""Docstrings in all sources that open with a word of `OPENING`."""
PHRASES_MAX = 5
"""Banned phrases in all sources."""
READ_BY_ALL_MAX = 0
"""Banned phrases in README.md, docs/ and the help of commands."""
CLASS_NAMES_MAX = 22
"""Classes with a participle as their name (`Joined`, `Filling`): what is it that was joined?"""

ROOT = Path(__file__).parents[2]
OPENING = re.compile(r"(What|Whether|Who|Whoever|Whose|Those|Of|Where|How|Which)\b")
ROWS = [line.split(" → ") for line in Path(__file__).with_name("banned_phrases.txt").read_text().splitlines() if line[0] != "#"]
PHRASE = re.compile("|".join(rf"\b(?:{row[0]})\b" for row in ROWS if len(row) == 2), re.IGNORECASE)
COUNTED = {row[0]: (re.compile(rf"\b(?:{row[0]})\b", re.IGNORECASE), int(row[2])) for row in ROWS if len(row) == 3}
"""Pattern of a phrase with a ceiling of its own → the compiled pattern, its ceiling."""
PARTICIPLE = re.compile(r"_?(?:[A-Z][a-z]*(?:ed|ing)|Drawn|Found|Held|Kept|Left|Lost|Made|Sent|Taken|Torn|Told|Written)")
NOUNS = {"Fencing", "Finding", "Opening", "Published", "Recording", "Seed", "Setting", "Standing"}
"""Class names that look like participles and are nouns here."""
TEXT_TOKENS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
ROOMS_LEFT_OUT = {"tests", "src", "build", "dist"}


def openings(source: str) -> Iterator[int]:
    """Yield the line of each docstring that opens with a relative clause."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and OPENING.match(value.value.strip()):
                yield statement.lineno


def class_names(source: str) -> Iterator[int]:
    """Yield the line of each class that has a participle as its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and PARTICIPLE.fullmatch(node.name) and node.name.lstrip("_") not in NOUNS:
            yield node.lineno


def phrases_in_text(text: str, phrase: re.Pattern[str] = PHRASE) -> Iterator[int]:
    """Yield the line of each banned phrase in a text."""
    yield from (text.count("\n", 0, match.start()) + 1 for match in phrase.finditer(text))


@cache
def texts(source: str) -> list[tuple[int, str]]:
    """Return (line, text) of each comment and string literal of a Python source."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start[0], token.string) for token in tokens if token.type in TEXT_TOKENS]


def phrases(source: str, phrase: re.Pattern[str] = PHRASE) -> Iterator[int]:
    """Yield the line of each banned phrase in comments and string literals of a Python source."""
    yield from (start + line - 1 for start, text in texts(source) for line in phrases_in_text(text, phrase))


def sources() -> list[Path]:
    """Return every Python file that people wrote, without tests."""
    rooms = (path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in ROOMS_LEFT_OUT)
    return [path for room in sorted(rooms) for path in sorted(room.rglob("*.py")) if "_pb2" not in path.name]


def documents() -> list[Path]:
    """Return the Markdown files that people wrote."""
    return sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def helps() -> Iterator[tuple[str, str]]:
    """Yield (command line, help) of each command and of each of its options."""
    import click

    from kraftlab.cli.main import build

    def walk(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
        yield path, "\n".join(filter(None, (command.help, command.short_help, command.epilog)))
        for parameter in command.params:
            yield f"{path} {parameter.opts[-1]}", getattr(parameter, "help", None) or ""
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from walk(found, f"{path} {name}") if (found := command.get_command(context, name)) else ()

    yield from walk(build(), "kraftlab")


def counted(rooms: list[str]) -> bool:
    """Print the number of each kind with a ceiling of its own, and its places in `rooms`; return True if one is exceeded."""
    code = [(path.relative_to(ROOT), path.read_text()) for path in sources()]
    pages = [(path.relative_to(ROOT), path.read_text()) for path in documents() if "reference" not in path.parts]
    is_exceeded = False
    for name, (phrase, most) in {**COUNTED, "class names": (None, CLASS_NAMES_MAX)}.items():
        found = [(place, line) for place, text in code for line in (phrases(text, phrase) if phrase else class_names(text))]
        found += [(place, line) for place, text in pages for line in (phrases_in_text(text, phrase) if phrase else ())]
        is_exceeded |= len(found) > most
        print(f"{len(found):>5} of at most {most:<4} {name}")
        for place, line in found:
            if place.parts[0] in rooms:
                print(f"      {place}:{line}")
    return is_exceeded


def main(rooms: list[str]) -> int:
    """Print the counts per room and every place in `rooms`; return 1 if a ceiling is exceeded."""
    found: dict[str, list[str]] = {"openings": [], "phrases": []}
    for path in sources():
        text, place = path.read_text(), path.relative_to(ROOT)
        found["openings"] += [f"{place}:{line}: opening" for line in openings(text)]
        found["phrases"] += [f"{place}:{line}: phrase" for line in phrases(text)]
    read_by_all = [f"{path.relative_to(ROOT)}:{line}" for path in documents() for line in phrases_in_text(path.read_text())]
    read_by_all += [f"{command} --help" for command, text in helps() for _ in phrases_in_text(text)]
    for place in sorted(place for places in found.values() for place in places if place.split("/")[0] in rooms):
        print(place)
    counts = {kind: Counter(place.split("/")[0] for place in places) for kind, places in found.items()}
    for room in sorted(set().union(*counts.values())):
        print(f"{room:<12} {counts['openings'][room]:>5} openings {counts['phrases'][room]:>5} phrases")
    print(f"{'all':<12} {len(found['openings']):>5} openings {len(found['phrases']):>5} phrases", end="; ")
    print(
        f"at most {OPENINGS_MAX} and {PHRASES_MAX}; {len(read_by_all)} phrases in documents and help, at most {READ_BY_ALL_MAX}"
    )
    for place in read_by_all:
        print(place)
    is_exceeded = counted(rooms)
    numbers = (len(found["openings"]), len(found["phrases"]), len(read_by_all))
    return int(
        is_exceeded
        or any(number > most for number, most in zip(numbers, (OPENINGS_MAX, PHRASES_MAX, READ_BY_ALL_MAX), strict=True))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

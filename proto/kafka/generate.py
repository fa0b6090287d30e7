"""Write Python for Kafka's message schemas; with `--check`, only compare the committed code with them.

Theory of operation. A message's JSON gives its structures, fields and the versions of each. Every structure becomes a value class
with the fields of all versions, and a function that appends it to a bytearray. The code of a field is worked out for each version
on its own; versions with equal code share a branch, and without differences there is no branch. Neighbours of a fixed size, an
empty section of tagged fields included, share one `struct` call. `SPLIT_BY_VERSION` names the structures of which a large message
has thousands: each of their layouts becomes a function of its own, without branches.

Fields that a version does not have are left out of its bytes. The records of a log also get readers; unknown tags are skipped.
Python's standard library is all that this file needs. The code is written as `ruff format` would write it.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterator

from schemas import FORMATS, MESSAGES, NEVER, Field, Message, Structure, Versions, read, snake_case

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESPONSES = sorted(path.stem for path in MESSAGES.glob("*Response.json"))
RECORDS = ("OffsetCommitKey", "GroupMetadataKey", "OffsetCommitValue", "GroupMetadataValue")
SPLIT_BY_VERSION = {"MetadataResponsePartition", "PartitionData"}
EXPORTED = {"MetadataResponseTopic": "encode_topic"}
"""Structures that callers encode on their own, to keep the bytes."""
TYPES = {"bool": "bool", "uuid": "bytes", "string": "str", "bytes": "bytes", "records": "Part"}
"""Kind → type in Python. Other kinds are numbers or structures."""
EMPTY_TEXT = ' or ""'
WIDTH = 130
Code = list[str]


# --- lines of code --------------------------------------------------------------------------------------------------------


def indented(lines: Code) -> Code:
    return [f"    {line}" if line else "" for line in lines]


def wrapped(line: str) -> Code:
    """Return a line that is too long with its arguments in the next line, or one a line: the first that fits."""
    if len(line) <= WIDTH:
        return [line]
    head, arguments, tail = re.fullmatch(r"(.*?\()(.*)(\)[^()]*)", line).groups()
    space = " " * (len(line) - len(line.lstrip()))
    if len(space) + 4 + len(arguments) <= WIDTH:
        return [head, f"{space}    {arguments}", space + tail]
    return [head, *(f"{space}    {argument}," for argument in arguments.split(", ")), space + tail]


def grouped(versions: Versions, code: Callable[[int], Code]) -> list[tuple[int, Code]]:
    """Return the lowest version and the code of each group of neighbouring versions with the same code, the newest first."""
    groups: list[tuple[int, Code]] = []
    for version in range(versions.lowest, versions.highest + 1):
        lines = code(version)
        if not groups or groups[-1][1] != lines:
            groups.append((version, lines))
    return groups[::-1]


def branches(groups: list[tuple[int, Code]]) -> Code:
    """Return the code of each group in a branch of its own."""
    if len(groups) == 1:
        return groups[0][1]
    found: Code = []
    for index, (lowest, lines) in enumerate(groups):
        is_last = index == len(groups) - 1
        if is_last and not lines:
            break
        found.append("else:" if is_last else f"{'elif' if index else 'if'} version >= {lowest}:")
        found += indented(lines or ["pass"])
    return found


def merged(groups: list[list[tuple[int, Code]]]) -> list[list[tuple[int, Code]]]:
    """Return the groups with neighbours in one that change at the same versions."""
    found: list[list[tuple[int, Code]]] = []
    for each in groups:
        if found and [lowest for lowest, _ in found[-1]] == [lowest for lowest, _ in each]:
            found[-1] = [(lowest, [*before, *code]) for (lowest, before), (_, code) in zip(found[-1], each, strict=True)]
        else:
            found.append(each)
    return found


def assigned(name: str, values: list[tuple[int, str]]) -> Code:
    """Return the code that gives `name` the value of the version's group, on one line if that is possible."""
    if len(values) == 2:
        (lowest, newer), (_, older) = values
        line = f"{name} = {newer} if version >= {lowest} else {older}"
        if len(line) + 4 <= WIDTH:
            return [line]
    return branches([(lowest, [f"{name} = {value}"]) for lowest, value in values])


def pack_name(formats: str) -> str:
    return "_pack_" + formats.replace("16s", "u").replace("?", "o")


class Names:
    """The names that the code of a module imports, and its struct formats."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.formats: set[str] = set()

    def use(self, name: str) -> str:
        """Import a name."""
        self.imports.add(name)
        return name

    def pack(self, formats: str) -> str:
        """Return the name of the function that packs these formats."""
        self.formats.add(formats)
        return pack_name(formats)


class Coder:
    """Writes the classes and functions of one message. `is_read`: from its bytes too; elements are then never bytes."""

    def __init__(self, message: Message, names: Names, is_read: bool) -> None:
        self._message = message
        self._names = names
        self._is_read = is_read
        self._cut = message.with_records
        no_tags = Field("", "no tags", False, message.flexible, NEVER, NEVER, -1, "")
        self._no_tags, self._tags_follow = no_tags, no_tags._replace(kind="tags")

    # Value classes

    def classes(self) -> Iterator[Code]:
        """Yield the value class of each structure, and the defaults of tagged structures."""
        tagged = {field.kind for each in self._message.structures for field in each.fields if field.is_tagged}
        for structure in self._message.structures:
            about = f"`{self._message.name}`, a message of Kafka."
            if structure.parent is not None:
                about = f"{'Element' if structure.parent.is_array else 'Value'} of `{structure.parent.attribute}`."
            fields = [f"    {field.attribute}: {self._annotation(field)} = {self._default(field)}" for field in structure.fields]
            yield [f"class {structure.name}(msgspec.Struct, frozen=True, gc=False):", f'    """{about}"""', "", *fields]
            if structure.name in tagged and structure.parent is not None and not structure.parent.is_array:
                yield [f"{default_name(structure.name)} = {structure.name}()"]

    def _annotation(self, field: Field) -> str:
        kind = TYPES.get(field.kind, field.kind if field.is_structure else "int")
        if field.kind == "records":
            self._names.use("Part")
        if field.is_array:
            is_open = field.is_structure and not self._is_read
            kind = f"{self._names.use('Sequence')}[{kind} | bytes]" if is_open else f"tuple[{kind}, ...]"
        return f"{kind} | None" if field.is_nullable else kind

    def _default(self, field: Field) -> str:
        if field.default == "null" or field.kind == "records":
            return "None"
        if field.is_array:
            return "()"
        if field.is_structure:
            return default_name(field.kind) if field.is_tagged else f"{field.kind}()"
        if field.kind == "uuid":
            return self._names.use("NO_ID")
        if field.kind in ("string", "bytes"):
            return "b" * (field.kind == "bytes") + json.dumps(field.default or "")
        if field.kind == "bool":
            return str(field.default or False).title()
        return str(field.default or 0)

    # Encoders

    def encoders(self) -> Iterator[Code]:
        """Yield a function for each structure, which appends it to `out`."""
        for structure in self._message.structures:
            if structure.name not in SPLIT_BY_VERSION:
                yield self._function(structure, "", self._loop(structure, self._code(structure, self._message.versions)))
                continue
            layouts = grouped(
                self._message.versions, lambda version, each=structure: self._code(each, Versions(version, version))
            )
            for lowest, code in layouts:
                yield self._function(structure, f"_{lowest}", self._loop(structure, code))
            arguments = "out, values, version" + (", cuts" if structure.name in self._cut else "")
            calls = [(lowest, [f"{function_name(structure.name)}_{lowest}({arguments})"]) for lowest, _ in layouts]
            yield self._function(structure, "", branches(calls))

    def _function(self, structure: Structure, suffix: str, code: Code) -> Code:
        value = f"value: {structure.name}"
        if structure.is_repeated:
            self._names.use("Sequence")
            value = f"values: Sequence[{structure.name}{'' if self._is_read else ' | bytes'}]"
        cuts = f", cuts: list[{self._names.use('Cut')}]" if structure.name in self._cut else ""
        head = f"def {function_name(structure.name)}{suffix}(out: bytearray, {value}, version: int{cuts}) -> None:"
        return [head, *indented(code)]

    def _loop(self, structure: Structure, code: Code) -> Code:
        if not structure.is_repeated:
            return code
        inserted = [] if self._is_read else ["if isinstance(value, bytes):", "    out += value", "    continue"]
        return ["for value in values:", *indented([*inserted, *code])]

    def _code(self, structure: Structure, versions: Versions) -> Code:
        """Return the code that appends a value in any of these versions."""
        fields = [each for each in structure.fields if not each.is_tagged and each.versions.overlap(versions)]
        has_tags = any(each.is_tagged for each in structure.fields)
        runs: list[list[Field]] = []
        for field in [*fields, self._tags_follow if has_tags else self._no_tags]:
            if field.is_fixed and runs and runs[-1][0].is_fixed:
                runs[-1].append(field)
            else:
                runs.append([field])
        groups = [grouped(versions, lambda version, run=run: self._run(structure, run, version)) for run in runs]
        return [line for each in merged(groups) for line in branches(each)]

    def _run(self, structure: Structure, run: list[Field], version: int) -> Code:
        """Return the code of neighbours of a fixed size, or of one other field, in one version."""
        run = [field for field in run if version in field.versions]
        if not run:
            return []
        if run[0].kind == "tags":
            return self._tags([each for each in structure.fields if version in each.tagged], version)
        if not run[0].is_fixed:
            return self._append(run[0], version)
        if run == [self._no_tags]:
            return ['out += b"\\x00"']
        formats = "".join(FORMATS[field.kind] for field in run)
        values = ", ".join(f"value.{field.attribute}" for field in run if field is not self._no_tags)
        return [f"out += {self._names.pack(formats)}({values})"]

    def _append(self, field: Field, version: int, out: str = "out") -> Code:
        source, compact = f"value.{field.attribute}", "compact_" if version in self._message.flexible else ""
        cannot_be_null = field.is_nullable and version not in field.nullable
        if field.kind == "records":
            return [f"{self._names.use(f'add_{compact}records')}({out}, {source}, cuts)"]
        if field.is_array and not field.is_structure:
            lists = self._names.use(f"{compact}int32_lists".upper())
            return [f"{out} += {lists}[{source}{' or ()' if cannot_be_null else ''}]"]
        if not field.is_structure:
            function = self._names.use(compact + {"string": "string", "bytes": "byte_string"}[field.kind])
            return [f"{out} += {function}({source}{EMPTY_TEXT if cannot_be_null else ''})"]
        function, cuts = function_name(field.kind), ", cuts" if field.kind in self._cut else ""
        if field.is_array:
            length = f"{out} += {self._names.use(f'{compact}array_length')}({source}{' or ()' if cannot_be_null else ''})"
            return [length, f"{function}({out}, {source}{' or ()' if field.is_nullable else ''}, version{cuts})"]
        call = f"{function}({out}, {source}, version{cuts})"
        if not field.is_nullable:
            return [call]
        return [f"if {source} is None:", f'    {out} += b"\\xff"', "else:", f'    {out} += b"\\x01"', f"    {call}"]

    def _tags(self, fields: list[Field], version: int) -> Code:
        if not fields:
            return ['out += b"\\x00"']
        code = ["tags: list[tuple[int, bytes | bytearray]] = []"]
        for field in sorted(fields, key=lambda each: each.tag):
            source = f"value.{field.attribute}"
            default = self._default(field)
            code.append(f"if {source}:" if default in ("()", "False") else f"if {source} != {default}:")
            if field.is_fixed:
                code.append(f"    tags.append(({field.tag}, {self._names.pack(FORMATS[field.kind])}({source})))")
                continue
            code += ["    data = bytearray()", *indented(self._append(field, version, "data"))]
            code.append(f"    tags.append(({field.tag}, data))")
        return [*code, f"out += {self._names.use('tag_section')}(tags)"]

    # Readers

    def readers(self) -> Iterator[Code]:
        """Yield a function for each structure, which takes it from a reader."""
        versions = self._message.versions
        for structure in self._message.structures:
            code: Code = []
            for field in structure.fields:
                values = grouped(versions, lambda version, each=field: [self._value(each, version)])
                code += assigned(field.attribute, [(lowest, value) for lowest, (value,) in values])
            code += branches(grouped(versions, lambda version, each=structure: self._take_tags(each, version)))
            arguments = (f"{each.attribute}={each.attribute}" for each in structure.fields)
            code.append(f"return {structure.name}({', '.join(arguments)})")
            head = f"def _read{function_name(structure.name)}(reader: Reader, version: int) -> {structure.name}:"
            yield [head, *indented(code)]

    def _value(self, field: Field, version: int) -> str:
        if field.is_tagged or version not in field.versions:
            return self._default(field)
        compact = "compact_" if version in self._message.flexible and not field.is_fixed else ""
        if field.is_array:
            element = f"_read{function_name(field.kind)}(reader, version)"
            return f"tuple({element} for _ in range(reader.{compact}array_length()))"
        nullable = "nullable_" if version in field.nullable else ""
        return f"reader.{compact}{nullable}{field.kind.replace('bytes', 'byte_string')}()"

    def _take_tags(self, structure: Structure, version: int) -> Code:
        if version not in self._message.flexible:
            return []
        known = [each for each in structure.fields if version in each.tagged]
        if not known:
            return ["reader.skip_tagged_fields()"]
        code = ["for tag, data in reader.tagged_fields():"]
        for field in known:
            code += [f"    if tag == {field.tag}:", f"        {field.attribute} = data.{field.kind}()"]
        return code


def function_name(structure: str) -> str:
    return f"_{snake_case(structure)}"


def default_name(structure: str) -> str:
    return f"_NO_{snake_case(structure).upper()}"


# --- modules --------------------------------------------------------------------------------------------------------------


ELSEWHERE = {"Sequence", "Part", "InMemory"}
"""Imported names that `gateway/primitives.py` does not have."""


def module(about: str, names: Names, blocks: list[Code]) -> str:
    """Return the text of a module. `about`: the lines of its docstring after the first."""
    used = sorted(names.imports - ELSEWHERE, key=lambda name: (not name.isupper(), name[0].islower(), name))
    lines = [*about.splitlines(), "", "from __future__ import annotations", "", "import struct"]
    if "Sequence" in names.imports:
        lines.append("from collections.abc import Sequence")
    lines += ["", "import msgspec", "", f"from kraftlab.gateway.primitives import {', '.join(used)}"]
    if len(lines[-1]) > WIDTH:
        lines[-1:] = ["from kraftlab.gateway.primitives import (", *(f"    {name}," for name in used), ")"]
    parts = sorted(names.imports & {"Part", "InMemory"})
    lines += [f"from kraftlab.wire.parts import {', '.join(parts)}"] if parts else []
    lines += ["", *(f'{pack_name(formats)} = struct.Struct(">{formats}").pack' for formats in sorted(names.formats))]
    text = "\n".join(lines) + "\n"
    for block in blocks:
        text += "\n\n" + "\n".join(line for each in block for line in wrapped(each)) + "\n"
    return text


def response_module(name: str) -> str:
    """Return the module that encodes a response."""
    message, names = read(name), Names()
    coder = Coder(message, names, is_read=False)
    blocks = [*coder.classes(), *coder.encoders()]
    function, cuts = function_name(message.name), ", cuts" if message.name in message.with_records else ""
    names.use("Part")
    parts = ["cuts: list[Cut] = []"] if cuts else []
    result = f"{names.use('in_parts')}(out, cuts)" if cuts else "[out]"
    blocks.append(
        [
            f"def encode(response: {message.name}, version: int) -> list[Part]:",
            '    """Return the body of a response, without length and header."""',
            *indented(["out = bytearray()", *parts, f"{function}(out, response, version{cuts})", f"return {result}"]),
        ]
    )
    blocks += [_exported(structure) for structure in message.structures if structure.name in EXPORTED]
    about = f'"""Generated by proto/kafka/generate.py from {name}.json; do not edit. Values, and their bytes."""'
    return module(about, names, blocks)


def _exported(structure: Structure) -> Code:
    assert structure.parent is not None
    about = f'"""Return an element of `{structure.parent.attribute}` as bytes, which can take its place."""'
    code = [about, "out = bytearray()", f"{function_name(structure.name)}(out, (value,), version)", "return bytes(out)"]
    return [f"def {EXPORTED[structure.name]}(value: {structure.name}, version: int) -> bytes:", *indented(code)]


ENCODERS_TEXT = '''"""Generated by proto/kafka/generate.py; do not edit. Encoders of responses, far faster than those of kio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraftlab.wire.parts import Part

from . import (
{imports}
)

ENCODERS: Mapping[int, Callable[[Any, int], list[Part]]] = {{
{rows}
}}
"""API key → function of a response and its version that returns the body in parts, without length and header."""
'''


def encoders_module() -> str:
    """Return the table of all encoders."""
    keys = {snake_case(name): read(name).key for name in RESPONSES}
    rows = [f"    {key}: {name}.encode," for name, key in sorted(keys.items(), key=lambda row: row[1])]
    return ENCODERS_TEXT.format(imports="\n".join(f"    {name}," for name in sorted(keys)), rows="\n".join(rows))


RECORDS_TEXT = '''
def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Return the key of a record, with its type in front."""
    out = bytearray()
    if isinstance(key, OffsetCommitKey):
        out += _pack_h({offset_key})
        _offset_commit_key(out, key, 0)
    else:
        out += _pack_h({group_key})
        _group_metadata_key(out, key, 0)
    return bytes(out)


def decode_key(data: InMemory) -> OffsetCommitKey | GroupMetadataKey | None:
    """Return the key of a record; None for the other types of Kafka 4.3. ValueError for malformed bytes."""
    reader = Reader(data, "key of __consumer_offsets")
    key: OffsetCommitKey | GroupMetadataKey
    record_type = reader.int16()
    if record_type in {offset_keys}:
        key = _read_offset_commit_key(reader, 0)
    elif record_type == {group_key}:
        key = _read_group_metadata_key(reader, 0)
    else:
        return None
    reader.expect_end()
    return key


def encode_value(value: OffsetCommitValue | GroupMetadataValue, version: int) -> bytes:
    """Return the value of a record, with its version in front. Kafka 4.3 writes version 4 of offsets (1 if they have a time to
    expire), and version 3 of groups.
    """
    out = bytearray(_pack_h(version))
    if isinstance(value, OffsetCommitValue):
        _offset_commit_value(out, value, version)
    else:
        _group_metadata_value(out, value, version)
    return bytes(out)


def decode_offset_value(data: InMemory) -> OffsetCommitValue:
    """Return the value of an offset's record. ValueError for malformed bytes and unknown versions."""
    reader = Reader(data, "OffsetCommitValue")
    value = _read_offset_commit_value(reader, reader.version({offset_highest}))
    reader.expect_end()
    return value


def decode_group_value(data: InMemory) -> GroupMetadataValue:
    """Return the value of a group's record. ValueError for malformed bytes and unknown versions."""
    reader = Reader(data, "GroupMetadataValue")
    value = _read_group_metadata_value(reader, reader.version({group_highest}))
    reader.expect_end()
    return value
'''


def records_module() -> str:
    """Return the module of the records of `__consumer_offsets`, in both directions."""
    names, messages = Names(), {name: read(name) for name in RECORDS}
    names.imports |= {"Reader", "InMemory"}
    names.pack("h")
    coders = [Coder(message, names, is_read=True) for message in messages.values()]
    blocks = [block for coder in coders for block in (*coder.classes(), *coder.encoders(), *coder.readers())]
    keys = {name: messages[name].key for name in ("OffsetCommitKey", "GroupMetadataKey")}
    legacy = read("LegacyOffsetCommitKey")
    assert legacy.structures[-1].fields == messages["OffsetCommitKey"].structures[-1].fields, "older keys have the same fields"
    text = RECORDS_TEXT.format(
        offset_key=keys["OffsetCommitKey"],
        offset_keys=(legacy.key, keys["OffsetCommitKey"]),
        group_key=keys["GroupMetadataKey"],
        offset_highest=messages["OffsetCommitValue"].versions.highest,
        group_highest=messages["GroupMetadataValue"].versions.highest,
    )
    about = (
        '"""Generated by proto/kafka/generate.py from OffsetCommit*.json and GroupMetadata*.json; do not edit.\n\n'
        'Records of the topic `__consumer_offsets`, from bytes and to bytes.\n"""'
    )
    return module(about, names, blocks) + "\n" + text


def modules() -> dict[pathlib.Path, str]:
    """Return the text of every generated module."""
    generated = ROOT / "gateway" / "generated"
    found = {generated / f"{snake_case(name)}.py": response_module(name) for name in RESPONSES}
    found[generated / "__init__.py"] = encoders_module()
    found[ROOT / "broker" / "groups" / "log_records.py"] = records_module()
    return found


def stale() -> list[str]:
    """Generated modules whose committed text is not what the schemas give."""
    found = modules().items()
    return sorted(str(path.relative_to(ROOT)) for path, text in found if not path.exists() or path.read_text() != text)


def main() -> None:
    if "--check" not in sys.argv:
        for path, text in modules().items():
            path.write_text(text)
    elif names := stale():
        sys.exit(f"generated code is not current: {', '.join(names)}; run: make proto")


if __name__ == "__main__":
    main()

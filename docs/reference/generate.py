"""Writes the reference pages from the code: commands, configs, records, calls and the Python API. `--check` only compares.

`make reference` runs this file; a test compares the committed pages.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import click
import msgspec

import kraftlab
from kraftlab.cli.main import build
from kraftlab.client import AdminClient, CallStream, results
from kraftlab.client.caller import Caller
from kraftlab.client.log_dirs import LogDirCalls, LogDirFilter
from kraftlab.client.partitions import DeletedRecords
from kraftlab.config.config_key import ConfigKey
from kraftlab.config.models import BrokerConfig, ControllerConfig
from kraftlab.config.topic_configs import BROKER_KEYS, TOPIC_KEYS
from kraftlab.config.unused_keys import ONLY_FOR_ALL, ONLY_IN_FILES, UNUSED
from kraftlab.metadata.records import AnyRecord
from kraftlab.metrics.catalogue import METRICS, Metric
from kraftlab.quorum.core.types import VoterSet

HERE = Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto" / "kraftlab" / "admin" / "v1" / "admin.proto"
EXAMPLES = HERE / "examples.py"
WIDTH = 100


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)


# -- commands --------------------------------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    yield "# Commands\n\nThe help of every command, as `kraftlab COMMAND --help` prints it."
    yield from _helps(build(), "kraftlab", None)


def _helps(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    settings = command.context_settings | {"max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, **settings)
    yield f"## {path}\n\n```text\n{command.get_help(context).rstrip()}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from _helps(found, f"{path} {name}", context)


# -- configs ---------------------------------------------------------------------------------------------------------------


def configs() -> Iterator[str]:
    yield (
        "# Configs\n\nNodes read `server.properties` (Kafka's format). A topic config can be set on a topic, or as its "
        "broker-wide synonym for all topics.\nA key that nothing here acts on is refused, unless it has its default value."
    )
    fields = {field.encode_name: field for model in (ControllerConfig, BrokerConfig) for field in msgspec.structs.fields(model)}
    synonyms = {key.synonym for key in TOPIC_KEYS.values()}
    rows = (
        [f"`{key.name}`", _default(fields[key.name].default if key.name in fields else key.default), _place(key), _meaning(key)]
        for key in BROKER_KEYS.values()
        if key.name not in UNUSED and (key.name not in synonyms or key.name in fields)
    )
    yield "## Nodes\n\n" + table(("key", "default", "changes", "meaning"), rows)
    rows = (
        [f"`{key.name}`", f"`{key.default}`", f"`{key.synonym}`" if key.synonym else "", _meaning(key)]
        for key in TOPIC_KEYS.values()
        if key.name not in UNUSED
    )
    yield "## Topics\n\n" + table(("key", "default", "broker-wide synonym", "meaning"), rows)
    refused: dict[str, list[str]] = {}
    for name, reason in UNUSED.items():
        refused.setdefault(reason, []).append(f"`{name}`")
    yield "## Refused\n\n" + table(
        ("reason", "keys that accept their default only"), ([reason, ", ".join(names)] for reason, names in refused.items())
    )


def _place(key: ConfigKey) -> str:
    if not key.dynamic or key.name in ONLY_IN_FILES:
        return "at a start"
    if key.name in ONLY_FOR_ALL:
        return "at any time, for all brokers"
    return "at any time, per broker" if key.per_broker else "at any time"


def _meaning(key: ConfigKey) -> str:
    assert key.documentation is not None, f"config/config_key.py does not say what {key.name} does"
    return key.documentation


def _default(value: object) -> str:
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value in (None, ()) or isinstance(value, VoterSet) else f"`{value}`"


@cache
def _attribute_docs(kind: type) -> dict[str, str]:
    """Return the docstrings that follow attributes in the source of a class."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return {
        before.target.id: " ".join(inspect.cleandoc(after.value.value).split())
        for before, after in zip(node.body, node.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
    }


# -- records ---------------------------------------------------------------------------------------------------------------


def records() -> Iterator[str]:
    yield (
        "# Metadata records\n\nA record is a MessagePack array `[type, version, fields…]`. Types below 1000 are Kafka's. In "
        "change records null means *unchanged*. Ids are 16 bytes."
    )
    for record in sorted(typing.get_args(AnyRecord), key=lambda record: record.TYPE):
        docs = _attribute_docs(record)
        fields = [field for field in msgspec.structs.fields(record) if field.name != "version"]
        types = {name: re.sub(r"\btuple\[(.*), \.\.\.\]", r"list of \1", text) for name, text in record.__annotations__.items()}
        rows = (
            [f"`{field.name}`", f"`{types[field.name]}`", _default(field.default), docs.get(field.name, "")] for field in fields
        )
        text = " ".join((vars(record).get("__doc__") or "").split())
        parts = (
            f"## {record.TYPE} {record.__name__}",
            text,
            table(("field", "type", "default", "meaning"), rows) if fields else "",
        )
        yield "\n\n".join(filter(None, parts))


# -- calls -----------------------------------------------------------------------------------------------------------------


def calls() -> Iterator[str]:
    text = PROTO.read_text()
    messages = dict(_messages(text))
    yield (
        "# Calls of the admin API\n\nThe gRPC service `kraftlab.admin.v1.Admin`. `AdminClient` has methods for "
        "those that people use most; its reads return frozen values (`client/results.py`). `AdminClient.call` sends any of them. "
        "`EntriesFailed` names the refused topics, partitions and others of a response (`client/entries.py`). "
        "Requests begin with `RequestHeader header`, responses with `ResponseHeader header`."
    )
    for comment, name, request, response in re.findall(
        r"((?:^  //[^\n]*\n)*)^  rpc (\w+)\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)", text, re.MULTILINE
    ):
        about = " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
        yield "\n\n".join(filter(None, (f"## {name}", about, f"```proto\n{messages[request]}\n{messages[response]}\n```")))
    rest = [body for name, body in messages.items() if not name.endswith(("Request", "Response"))]
    yield "## Messages that calls share\n\n```proto\n" + "\n".join(rest) + "\n```"


def _messages(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"((?:^//[^\n]*\n)*^(?:message|enum) (\w+) \{(?:\}|.*?^\}))", text, re.MULTILINE | re.DOTALL)
    return [(name, body) for body, name in found]


# -- Python ----------------------------------------------------------------------------------------------------------------


def python() -> Iterator[str]:
    names = ", ".join(f"`{name}`" for name in kraftlab.__all__)
    yield (
        "# Python API\n\nThe package is typed: mypy checks programs against the installed wheel. `kraftlab` has these names, "
        f"each loaded on its first use: {names}. `LocalCluster` is described in [test your own tool](../test-your-tool.md).\n\n"
        "Every call raises `ApiError` if the whole request is refused, `EntriesFailed` if some of its topics, partitions "
        "or other entries are, and `ClusterUnreachable` if no node answers in time. Below, `pb` is "
        "`kraftlab.admin.v1.admin_pb2`: the messages in [Calls](calls.md)."
    )
    yield "```python\nfrom kraftlab import AdminClient\nfrom kraftlab.admin.v1 import admin_pb2 as pb\n\n" + (
        'with AdminClient("127.0.0.1:21078") as client:  # any node\n    client.create_topic("clicks")\n```'
    )
    yield f"## AdminClient\n\n{_text(AdminClient)}\n\n```python\n{_signature(AdminClient.__init__)}\n```"
    source = EXAMPLES.read_text()
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    examples = {node.name: source.splitlines()[node.body[0].lineno - 1 : node.end_lineno] for node in nodes}
    for owner in (AdminClient, LogDirCalls, Caller):
        for name, method in vars(owner).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                example = textwrap.dedent("\n".join(examples[name]))
                yield f"### {name}\n\n{_text(method)}\n\n```python\n{_signature(method)}\n```\n\n```python\n{example}\n```"
    yield "## Errors"
    for error in (kraftlab.ApiError, kraftlab.EntriesFailed, kraftlab.OutcomeUnknown, kraftlab.ClusterUnreachable):
        yield f"### {error.__name__}({', '.join(base.__name__ for base in error.__bases__)})\n\n{_text(error)}"
    yield f"### answer_of\n\n{_text(kraftlab.answer_of)}"
    yield "## Values\n\nArguments and results are frozen. A result has None where a response has -1 or nothing."
    found = [value for value in vars(results).values() if isinstance(value, type) and value.__module__ == results.__name__]
    for kind in (kraftlab.MoveOptions, kraftlab.NewPartitions, LogDirFilter, CallStream, DeletedRecords, *found):
        fields = [item for base in reversed(kind.__mro__) for item in vars(base).get("__annotations__", {}).items()]
        rows = [(f"`{name}`", f"`{getattr(hint, '__forward_arg__', hint)}`") for name, hint in fields if kind is not CallStream]
        if rows or kind is CallStream:
            yield "\n\n".join(filter(None, (f"### {kind.__name__}", _text(kind), table(("field", "type"), rows) if rows else "")))


def _text(described: object) -> str:
    return inspect.getdoc(described) or ""


def _signature(function: Callable[..., object]) -> str:
    """Return the source of a signature, with a line for each parameter if it is long."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef) and node.returns is not None
    node.body, node.decorator_list = [ast.Expr(ast.Constant(...))], []
    line = ast.unparse(node).replace(":\n    ...", "").replace("(self, ", "(").replace("(self)", "()")
    if len(line) <= WIDTH:
        return line
    node.args.args = node.args.args[1:]
    parameters = re.split(r", (?=\*?\w+(?::|,)|\*, )", ast.unparse(node.args))
    return f"def {node.name}(\n    " + ",\n    ".join(parameters) + f",\n) -> {ast.unparse(node.returns)}"


# -- metrics ---------------------------------------------------------------------------------------------------------------


UNITS = {
    r"_bytes_per_second$": "bytes/s",
    r"_rate$": "1/s",
    r"_seconds(_total)?$": "s",
    r"_timestamp_seconds$": "s since 1970",
    r"(ms|latency_avg|latency_max)$": "ms",
    r"(bytes|bytesin|bytesout|_byte|log_size)(_total)?(_done|_left)?$|_bytes_(done|left)$": "bytes",
    r"(offset|high_watermark)$": "offset",
    r"(percent|ratio_avg)$": "0 to 1",
}
"""Unit by the end of a name; a number of things without one."""


def metrics() -> Iterator[str]:
    yield (
        "# Metrics\n\nEvery family of `/metrics`, with the MBean of Apache Kafka behind it. How to scrape, draw and alert: "
        "[Monitoring](monitoring.md).\n\nNames that begin with `kafka_` are those of Strimzi's rules for the JMX exporter, "
        "which its dashboards use, with Kafka's units and labels. Names that begin with `kraftlab_` have no equal in Kafka. "
        "A family is there once it has a value: a topic's with its first event, a request's with the first request."
    )
    for nodes, title in (
        ("every node", "Every node"),
        ("controller", "Controllers"),
        ("broker", "Brokers"),
        ("lab", "Local clusters"),
        ("cluster", "Whole clusters"),
    ):
        found = [metric for metric in METRICS.values() if metric.nodes == nodes]
        if found:
            rows = (
                [f"`{_with_labels(metric)}`", metric.kind, _unit(metric.name), _full(metric), metric.kafka] for metric in found
            )
            yield f"## {title}\n\n" + table(("name", "type", "unit", "meaning, and the difference from Kafka", "MBean"), rows)


def _with_labels(metric: Metric) -> str:
    return metric.name + (f"{{{','.join(metric.labels)}}}" if metric.labels else "")


def _unit(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if re.search(end, name)), "")


def _full(metric: Metric) -> str:
    return f"{metric.meaning} *{metric.difference[0].upper()}{metric.difference[1:]}.*" if metric.difference else metric.meaning


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "configs": configs,
    "records": records,
    "calls": calls,
    "python": python,
    "../metrics": metrics,
}
"""The pages, by their path from here without the suffix."""


def page(name: str) -> str:
    """Return the text of a page."""
    return "\n\n".join(PAGES[name]()) + "\n\n<!-- Generated by docs/reference/generate.py; run: make reference -->\n"


def stale() -> list[str]:
    """Return the names of the pages that differ from the code."""
    return [name for name in PAGES if not (path := HERE / f"{name}.md").exists() or path.read_text() != page(name)]


if __name__ == "__main__":
    for name in stale():
        if "--check" in sys.argv:
            sys.exit(f"docs/reference/{name}.md is not current; run: make reference")
        (HERE / f"{name}.md").write_text(page(name))

"""Checks traces against the specification with TLC: accepted, or the first line that no behaviour explains.

Several traces share one run of TLC, since a start of Java costs a second. Each line prints how far its trace has come. A trace
that does not reach its end is run once more alone, for the state before the line in question.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import tlc
from .actions import Action, BeyondSpecification, Line, Message, actions_of

INVARIANTS = (
    "ElectionSafety",
    "LeaderCompleteness",
    "StateMachineSafety",
    "LinearizableReads",
)
"""Checked in every state of a trace. Others need all batches of all nodes in every state, and are left to the models."""


class Verdict(NamedTuple):
    """The verdict on one trace. `first_unexplained` is the number of a line, from 1, or None; `action` is what it would be,
    `before` the node's state before it as TLC prints it. `broken` is an invariant that the trace breaks, or "".
    """

    accepted: bool
    events: int
    explained: int
    first_unexplained: int | None
    action: str
    before: str
    broken: str
    coverage: Counter[str]
    seconds: float


def check(traces: Sequence[Sequence[Line]], *, explain: bool = True) -> list[Verdict]:
    """Check traces, each a list of lines; those of equal nodes and voters share one run. Without `explain`, a
    rejected trace is not run again for the state before the line.

    BeyondSpecification, TlcMissing, TlcFailed.
    """
    read = [actions_of(lines) for lines in traces]
    worlds: dict[str, list[int]] = {}
    for number, actions in enumerate(read):
        worlds.setdefault(_configuration(actions, INVARIANTS), []).append(number)
    verdicts: dict[int, Verdict] = {}
    for numbers in worlds.values():
        started = time.perf_counter()
        reached, broken = _run([read[number] for number in numbers])
        seconds = (time.perf_counter() - started) / len(numbers)
        for place, number in enumerate(numbers, 1):
            lines, actions, done = traces[number], read[number], reached.get(place, 0)
            coverage = Counter(action["do"] for action in actions[:done])
            if done == len(actions) and not broken:
                verdicts[number] = Verdict(True, len(lines), len(lines), None, "", "", "", coverage, seconds)
            else:
                verdicts[number] = _rejected(lines, actions, coverage, seconds, explain)
    return [verdicts[number] for number in range(len(traces))]


def _rejected(lines: Sequence[Line], actions: list[Action], coverage: Counter[str], seconds: float, explain: bool) -> Verdict:
    """Run one trace alone, and describe the line at which it ends."""
    reached, broken = _run([actions])
    done = reached.get(1, 0)
    if done == len(actions) and not broken:
        return Verdict(True, len(lines), len(lines), None, "", "", "", coverage, seconds)
    action = actions[min(done, len(actions) - 1)]
    state = _run_to(actions, done) if explain else ""
    return Verdict(False, len(lines), action["line"] - 1, action["line"], action["do"], state, broken, coverage, seconds)


def _run(read: list[list[Action]]) -> tuple[dict[int, int], str]:
    """Return how many actions of each trace were taken, and the broken invariant."""
    with tempfile.TemporaryDirectory(prefix="kraftlab-tlc-") as directory:
        done = tlc.run("Trace", _configuration(read[0], INVARIANTS), Path(directory), extra={"TraceData.tla": data(read)})
    reached: dict[int, int] = {}
    for trace, line in re.findall(r'<<"line", (\d+), (\d+)>>', done.output):
        reached[int(trace)] = max(reached.get(int(trace), 0), int(line))
    return reached, done.violated if done.violated in INVARIANTS else ""


def _run_to(actions: list[Action], done: int) -> str:
    """Return TLC's words for the state after `done` actions: the memory and disk of the node that acts next."""
    node = actions[min(done, len(actions) - 1)]["n"]
    with tempfile.TemporaryDirectory(prefix="kraftlab-tlc-") as directory:
        extra = {"TraceData.tla": data([actions], stop_at=done, stop_node=node)}
        found = tlc.run("Trace", _configuration(actions, ("Before",)), Path(directory), extra=extra)
    state = re.search(r'^<<\s*"before",(.*?)>>$(?=\n<< ?"line"|\n\w|\Z)', found.output, re.DOTALL | re.MULTILINE)
    return f"node and disk {node}: {' '.join(state[1].split())}" if state else ""


def _configuration(actions: list[Action], invariants: tuple[str, ...]) -> str:
    nodes = sorted({action["n"] for action in actions} | _strangers(actions))
    first = sorted(_first_voters(actions))
    lines = [
        "SPECIFICATION Spec",
        "CHECK_DEADLOCK FALSE",
        "CONSTANTS",
        f"Node = {{{', '.join(map(str, nodes))}}}",
        "Nobody <- NoNode",
        f"FirstVoters = {{{', '.join(map(str, first))}}}",
        f"INVARIANTS Progress {' '.join(invariants)}",
    ]
    return "\n".join(lines) + "\n"


def _first_voters(actions: list[Action]) -> tuple[int, ...]:
    return next((tuple(action["first"]) for action in actions if action["do"] == "Begin" and action["first"]), ())


def _strangers(actions: list[Action]) -> set[int]:
    return {action["m"].source for action in actions if action["do"] == "Appear"}


# The data as a module


def data(read: list[list[Action]], stop_at: int = -1, stop_node: int = -1) -> str:
    """Return the module TraceData. Messages and batches are named once."""
    names: dict[Any, str] = {}
    definitions: list[str] = []
    traces = []
    for number, actions in enumerate(read, 1):
        lines = ",\n  ".join(_line(action, names, definitions) for action in actions)
        definitions.append(f"T{number} == <<\n  {lines}>>")
        traces.append(f"T{number}")
    return "\n".join(
        [
            "---- MODULE TraceData ----",
            "EXTENDS Integers, Sequences",
            "NoNode == -1",
            f"StopAt == {stop_at}",
            f"StopNode == {stop_node}",
            *definitions,
            f"Traces == <<{', '.join(traces)}>>",
            "====",
            "",
        ]
    )


def _line(action: Action, names: dict[Any, str], definitions: list[str]) -> str:
    try:
        return _record(action, names, definitions)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise BeyondSpecification(f"line {action['line']} is not what a node writes: {type(error).__name__} {error}") from error


def _record(action: Action, names: dict[Any, str], definitions: list[str]) -> str:
    fields = []
    for name, value in action.items():
        if name in ("line", "first"):
            continue
        if name in ("m", "asked"):
            text = _message(value, names, definitions)
        elif name == "messages":
            text = "{" + ", ".join(_message(message, names, definitions) for message in value) + "}"
        elif name == "batch":
            text = _batch(value, names, definitions)
        elif name == "voters":
            text = _set(value)
        elif name == "id":
            text = _id(value)
        else:
            text = _value(value)
        fields.append(f"{name} |-> {text}")
    return f"[{', '.join(fields)}]"


def _value(value: Any) -> str:
    """Return a word, a truth value or an integer of TLC, which has 31 bits and a sign."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int) and abs(value) < 1 << 31:
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"[\w-]*", value):
        return f'"{value}"'
    raise BeyondSpecification(f"the specification cannot express {value!r}")


def _set(values: Sequence[int]) -> str:
    return "{" + ", ".join(map(_value, values)) + "}"


def _named(key: Any, text: str, names: dict[Any, str], definitions: list[str]) -> str:
    if key not in names:
        names[key] = f"V{len(names)}"
        definitions.append(f"{names[key]} == {text}")
    return names[key]


def _batch(batch: Sequence[Any], names: dict[Any, str], definitions: list[str]) -> str:
    epoch, end, crc, voters = batch
    text = f"[epoch |-> {_value(epoch)}, end |-> {_value(end)}, id |-> {_id(crc)}, voters |-> {_set(voters or ())}]"
    return _named(("batch", text), text, names, definitions)


def _id(crc: int) -> str:
    """Return a crc as a string: it has 32 bits, and TLC's integers have 31 and a sign."""
    return f'"{crc:08x}"'


def _message(message: Message, names: dict[Any, str], definitions: list[str]) -> str:
    if message in names:
        return names[message]
    fields = {"type": message.type, "from": message.source, "to": message.target, "epoch": message.epoch}
    parts = [f"{name} |-> {_value(value)}" for name, value in fields.items()]
    outcome = dict(message.more).get("outcome")
    for name, value in message.more:
        if name == "data" and outcome == "records" and isinstance(value, tuple):
            text = f"<<{', '.join(_batch(batch, names, definitions) for batch in value)}>>"
        elif isinstance(value, tuple):
            text = f"<<{', '.join(map(_value, value))}>>"
        else:
            text = _value(value)
        parts.append(f"{name} |-> {text}")
    return _named(message, f"[{', '.join(parts)}]", names, definitions)

"""Merges the traces of several nodes into one trace of the cluster: an arrival follows the message's departure.

Theory of operation. Each node writes its own file, with the times of its own clock. The order within a file is certain; between
files only messages order events. A message is known by its sender, its receiver and its content. It has left its sender when the
disk has completed what it waits for (effects.py: barriers), which the sender's trace says as well. So steps are taken from the
files in the order of their times, but never an arrival before a message with that content has left. If no file can go on, the
earliest step is taken, and the check will find its arrival unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .actions import Line, Message, message_of, steps_of


class _Step:
    """The lines of one step. `leaving` are the messages that leave when it ends, `arriving` the message that it handles."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.leaving: list[Message] = []
        first = lines[0]
        is_arrival = first["event"] in ("receive", "answer") and first.get("asked", "") is not None
        self.arriving = message_of(first["m"], first["peer"], first["node"]) if is_arrival else None


def merged(files: Sequence[Sequence[Line]]) -> list[Line]:
    """Return the lines of all files. Each file is of one node, in the order in which the node wrote it."""
    waiting = [list(reversed(list(_steps(lines)))) for lines in files]
    nodes = {line["node"] for lines in files for line in lines[:1]}
    left: set[Message] = set()
    taken: list[Line] = []
    while any(waiting):
        heads = sorted((steps for steps in waiting if steps), key=lambda steps: int(steps[-1].lines[0]["time_us"]))
        ready = next((steps for steps in heads if _can_happen(steps[-1], left, nodes)), heads[0])
        step = ready.pop()
        left.update(step.leaving)
        taken += step.lines
    return taken


def _can_happen(step: _Step, left: set[Message], nodes: set[int]) -> bool:
    if step.arriving is None:
        return True
    message = step.arriving
    return message.type == "Other" or message.source not in nodes or bool({message, message._replace(target=-1)} & left)


def _steps(lines: Sequence[Line]) -> Iterator[_Step]:
    """Yield the steps of one node; each message leaves in the step that completes the last operation it waits for."""
    held: list[tuple[int, int, Message]] = []
    last_store = last_write = stored = durable = 0
    for step in map(_Step, steps_of(lines)):
        if step.lines[0]["step"] == 0:
            held, last_store, last_write, stored, durable = [], 0, 0, 0, 0
        for line in step.lines:
            event = line["event"]
            if event == "store":
                last_store = line["id"]
            elif event in ("append", "truncate", "install"):
                last_write = line["id"]
            elif event == "stored":
                stored = line["id"]
            elif event == "durable":
                durable = line["id"]
            elif event == "send" or (event == "reply" and line["peer"] >= 0):  # not to a client
                write = last_write if line["m"]["type"] == "Fetch" else 0
                held.append((last_store, write, message_of(line["m"], line["node"], line["peer"])))
        step.leaving = [message for store, write, message in held if store <= stored and write <= durable]
        held = [item for item in held if item[0] > stored or item[1] > durable]
        yield step

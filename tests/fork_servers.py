"""Processes of clusters of tests, forked from one that has imported their code.

A cluster's fork server (`kraftlab.lab.fork_server`) imports for 0.8 s of processor time, and a run starts more than a hundred.
Here one process imports it all once, has one thread and no event loop, and forks a fork server for each request. It forks twice,
so that the fork server becomes a child of the process that tests, which waits for it as for any other child (Linux). The process
ends when the process that tests ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

import msgspec

from kraftlab.lab import fork_server, node

DESCRIPTORS_MAX = 100


class Request(msgspec.Struct):
    """State of the process that tests, which a fork server inherits. Its descriptors are stdin, stdout, stderr and others."""

    directory: str
    environment: dict[str, str]


def main(channel: socket.socket) -> None:
    gc.disable()
    for role in node.ROLES:
        node.load(role)
    import grpc  # noqa: F401

    import kraftlab.broker.api.group_offsets
    import kraftlab.broker.api.producers
    import kraftlab.gateway.cluster
    import kraftlab.gateway.listener  # noqa: F401

    gc.freeze()
    while message := receive(channel):
        data, descriptors = message
        answer, answers = os.pipe()
        first = os.fork()
        if first == 0:
            pid = os.fork()
            if pid:
                os.write(answers, b"%d" % pid)
                os.kill(os.getpid(), signal.SIGKILL)
            channel.close()
            os.close(answer)
            os.close(answers)
            be_fork_server(msgspec.msgpack.decode(data, type=Request), descriptors)
            return
        os.waitpid(first, 0)
        channel.send(os.read(answer, 20))
        for descriptor in (answer, answers, *descriptors):
            os.close(descriptor)


def receive(channel: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return a message and its descriptors, or None if the other end is gone."""
    data, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, DESCRIPTORS_MAX)
    return (data, descriptors) if data else None


def be_fork_server(request: Request, descriptors: list[int]) -> None:
    os.setsid()
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    fork_server.main()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

"""Faults in force as a metric, `kraftlab_faults_injected`: plots of a broken cluster can show when it was broken, and how."""

from __future__ import annotations

from kraftlab.common.endpoint import Endpoint
from kraftlab.metrics.answers import Answer, Caller
from kraftlab.metrics.exposition import CONTENT_TYPE, Exposition
from kraftlab.metrics.server import MetricsServer

from ..cluster_plan import HOST, free_ports
from .breaker import Breaker
from .holds import LINK_FAULTS, NODE_FAULTS


def serve_faults(breaker: Breaker) -> tuple[Endpoint, MetricsServer]:
    """Serve /metrics at a free port of loopback, in a thread; the caller stops it. ClusterError, OSError."""
    [port] = free_ports(1)
    at = Endpoint(HOST, port)

    def metrics(caller: Caller) -> Answer:
        page, found = Exposition(), breaker.in_force()
        for kind in (*LINK_FAULTS, *NODE_FAULTS):
            page.add("kraftlab_faults_injected", found[kind], kind=kind)
        return Answer(page.text(), kind=CONTENT_TYPE)

    server = MetricsServer(at, {"/metrics": metrics})
    server.start()
    return at, server

"""Files for a Prometheus that scrapes a local cluster: `DIR/prometheus/prometheus.yml` and `targets.json`.

The labels of the targets are those of Strimzi's clusters in Kubernetes, by which its dashboards find a cluster and its pods.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.config.meta_properties import write_durably

from . import credentials
from .cluster_plan import ClusterPlan

FOLDER = "prometheus"
TARGETS = "targets.json"
FAULTS = "faults.json"
"""Targets that tell which faults are in force, while `kraftlab up --allow-chaos` runs."""
CONFIGURATION = "prometheus.yml"
CLUSTER = "kraftlab"


def write(directory: Path, plan: ClusterPlan) -> None:
    """Write the files if they differ from the plan. OSError."""
    folder = directory / FOLDER
    for path, text in ((folder / TARGETS, targets(plan)), (folder / CONFIGURATION, configuration(directory, plan))):
        if not path.exists() or path.read_text() != text:
            write_durably(path, text)
    if not (folder / FAULTS).exists():
        write_faults(directory, None)


def write_faults(directory: Path, at: Endpoint | None) -> None:
    """Write the target of the faults in force, or that there is none. OSError."""
    found = [] if at is None else [{"targets": [str(at)], "labels": _labels("faults") | {"container": "faults"}}]
    write_durably(directory / FOLDER / FAULTS, _json(found))


def targets(plan: ClusterPlan) -> str:
    """Return the targets, for `file_sd_configs`."""
    found = [
        {
            "targets": [str(node.metrics)],
            "labels": _labels(node.name),
        }
        for node in plan.nodes
        if node.metrics is not None
    ]
    return _json(found)


def _labels(name: str) -> dict[str, str]:
    return {
        "namespace": CLUSTER,
        "strimzi_io_cluster": CLUSTER,
        "strimzi_io_name": f"{CLUSTER}-kafka",
        "kubernetes_pod_name": f"{CLUSTER}-{name}",
        "container": "kafka",
    }


def _json(found: object) -> str:
    return msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"


def configuration(directory: Path, plan: ClusterPlan) -> str:
    """Return the configuration of a Prometheus, with the login of a secure cluster."""
    secrets = directory / credentials.SECRETS
    login = (
        "    scheme: https\n"
        f"    tls_config: {{ca_file: {_quoted(secrets / 'ca.pem')}}}\n"
        f"    basic_auth: {{username: {credentials.ADMIN}, password_file: {_quoted(secrets / credentials.PASSWORD_FILE)}}}\n"
    )
    return (
        "scrape_configs:\n"
        "  - job_name: kraftlab\n"
        "    scrape_interval: 5s\n"
        f"    file_sd_configs: [{{files: [{_quoted(directory / FOLDER / TARGETS)}]}}]\n"
        f"{login if plan.secure else ''}"
        "  - job_name: kraftlab-faults\n"
        "    scrape_interval: 5s\n"
        f"    file_sd_configs: [{{files: [{_quoted(directory / FOLDER / FAULTS)}]}}]\n"
    )


def _quoted(path: Path) -> str:
    """Return a path as a string of JSON, which is one of YAML too."""
    return msgspec.json.encode(str(path)).decode()

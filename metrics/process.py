"""The process's own numbers, with Prometheus' names: from /proc, which Linux alone has."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from .exposition import Exposition

_PAGE_BYTES = resource.getpagesize()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def write(page: Exposition) -> None:
    """Write what the system tells about this process; nothing where it tells nothing."""
    page.add("process_cpu_seconds_total", time.process_time())
    page.add("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        boot_s = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        page.add("process_open_fds", len(os.listdir("/proc/self/fd")))
    except (OSError, StopIteration):
        return
    page.add("process_start_time_seconds", boot_s + int(fields[19]) / _TICKS_PER_S)
    page.add("process_virtual_memory_bytes", int(fields[20]))
    page.add("process_resident_memory_bytes", int(fields[21]) * _PAGE_BYTES)


def disk_bytes() -> dict[str, int]:
    """Return the bytes that the process has had read from and written to disks, by read_bytes and write_bytes; {} if unknown."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}
    found = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
    return {name: found[name] for name in ("read_bytes", "write_bytes")}

"""Machines in network namespaces, with commands of a document that run on them as they stand there.

Theory of operation. A machine is a namespace of network, mounts and processes; `machine_init.py` is its first process. `admin`
is a network only, so that it can enter the others. A bridge in admin's network joins them. Programs that need a real machine are
stand-ins, first in PATH: `ssh` and `scp` enter the other machine, `systemctl` asks its first process, and `python3 -m venv` and
`pip` give it this test's kraftlab, since there is no index of packages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.helpers import machine_init

ADMIN = "admin"
_BLOCK = re.compile(r"```sh\n# ([^\n]+)\n(.*?)```", re.DOTALL)
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_COMMAND_S = 300.0
_APART = ("-n", "-m", "-p", "-f", "--mount-proc")
_ATTEMPT = """
ip link add v1 type veth peer name v2
ip link add v3 type bridge
mount -t tmpfs machine /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay machine -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
setpriv --inh-caps +dac_read_search --ambient-caps +dac_read_search true
"""
"""Everything that a machine needs."""


def sections(page: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the blocks of commands of each section: the place that the first line names, and the commands."""
    _, *parts = _SECTION.split(page.read_text())
    return {name: _BLOCK.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def obstacle() -> str:
    """Return the reason why this machine cannot have such machines, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "machines in namespaces need root on Linux"
    try:
        done = subprocess.run(["unshare", *_APART, "bash", "-e", "-c", _ATTEMPT], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    return f"no namespaces with veth, bridge and overlay: {done.stderr.strip()}" if done.returncode else ""


class Machine:
    """One machine. `number` is the last part of its address; 0 is admin."""

    def __init__(self, name: str, number: int, directory: Path, stand_ins: Path) -> None:
        self.name, self.address = name, f"10.0.0.{number or 254}"
        self.home, self._stand_ins = directory / name, stand_ins
        self.home.mkdir()
        scratch = directory / f"{name}-mounts"
        scratch.mkdir()
        init = [sys.executable, machine_init.__file__, str(scratch)]
        apart = ["unshare", *_APART, *init] if number else ["unshare", "-n", "sh", "-c", "echo; cat"]
        self._process = subprocess.Popen(apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"{name} did not start"
        of_process = f"/proc/{self.pid}/ns"
        self.entry = ["nsenter", f"--net={of_process}/net"]
        if number:
            self.entry += [f"--mount={of_process}/mnt", f"--pid={of_process}/pid_for_children"]
        (stand_ins / self.address).write_text(shlex.join(self.entry))
        self.run("ip link set lo up")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def network(self) -> str:
        """Path of the network namespace."""
        return f"/proc/{self.pid}/ns/net"

    def run(self, commands: str) -> str:
        """Run commands in a shell that keeps the variables exported by earlier ones; return the output. AssertionError."""
        variables = self.home / ".variables"
        script = f"[ ! -e {variables} ] || . {variables}\n{commands}\nexport -p > {variables}"
        environment = os.environ | {"PATH": f"{self._stand_ins}:{os.environ['PATH']}"}
        done = subprocess.run(
            [*self.entry, "bash", "-e", "-o", "pipefail", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            cwd=self.home,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, f"on {self.name}:\n{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    def end(self) -> None:
        """End the machine with everything on it."""
        self._process.communicate(timeout=20)


class Machines:
    """Machines with the names, at 10.0.0.1 and so on, and admin. `page` has the commands to follow."""

    def __init__(self, names: list[str], directory: Path, page: Path | None = None) -> None:
        self._sections = sections(page) if page is not None else {}
        self._directory = directory
        self._stand_ins = directory / "bin"
        self._stand_ins.mkdir()
        _write_stand_ins(self._stand_ins)
        self._all: dict[str, Machine] = {}
        self._names = names
        try:
            self.admin = self._all[ADMIN] = Machine(ADMIN, 0, directory, self._stand_ins)
            self.admin.run(
                f"ip link add bridge type bridge; ip address add {self.admin.address}/24 dev bridge; ip link set bridge up"
            )
            for name in names:
                self.make(name)
        except BaseException:
            self.end()
            raise

    def __getitem__(self, name: str) -> Machine:
        return self._all[name]

    def make(self, name: str) -> None:
        """Make the machine of that name, new and empty, and connect it."""
        number = self._names.index(name) + 1
        directory = self._directory / f"{len(list(self._directory.iterdir()))}"
        directory.mkdir()
        machine = self._all[name] = Machine(name, number, directory, self._stand_ins)
        self.admin.run(
            f"ip link add v{number} type veth peer name eth0 netns {machine.pid}; ip link set v{number} master bridge up"
        )
        machine.run(f"ip address add {machine.address}/24 dev eth0; ip link set eth0 up")

    def lose(self, name: str) -> None:
        """End a machine with its disks."""
        self._all.pop(name).end()

    def cut(self, name: str) -> None:
        """Cut a machine off from all others."""
        self.admin.run(f"ip link set v{self._names.index(name) + 1} down")

    def heal(self, name: str) -> None:
        self.admin.run(f"ip link set v{self._names.index(name) + 1} up")

    def follow(self, section: str, *, only: str = "", blocks: slice = slice(None)) -> str:
        """Run the blocks of a section, or those on one machine only; return the output of the last one."""
        output = ""
        for place, commands in self._sections[section][blocks]:
            for name in self.places(place):
                if only in ("", name):
                    output = self._all[name].run(commands)
        return output

    def places(self, text: str) -> list[str]:
        """Return the machines that the first line of a block names."""
        return self._names if text == "each machine" else text.split(", ")

    def end(self) -> None:
        for machine in reversed(list(self._all.values())):
            machine.end()


def _write_stand_ins(directory: Path) -> None:
    kraftlab = f'exec {sys.executable} -m kraftlab.cli.main "$@"'
    client = (
        "import json, socket, sys\n"
        f"asking = socket.socket(socket.AF_UNIX)\nasking.connect({machine_init.REQUESTS!r})\n"
        "asking.sendall(json.dumps(sys.argv[1:]).encode())\nsys.exit(asking.makefile().read() or 0)\n"
    )
    scripts = {
        "kraftlab": kraftlab,
        "ssh": f'host=${{1#root@}}; shift; exec $(cat {directory}/$host) bash -c "$*"',
        "scp": f"""
            target=${{!#}}; host=${{target%%:*}}; path=${{target#*:}}
            for file in "${{@:1:$#-1}}"; do
                case $path in */) to=$path$(basename $file) ;; *) to=$path ;; esac
                $(cat {directory}/${{host#root@}}) tee $to < $file > /dev/null
            done""",
        "systemctl": f'exec {sys.executable} -S -c {shlex.quote(client)} "$@"',
        "python3": '[ "$1 $2" = "-m venv" ] && mkdir -p $3/bin && ln -sf $(dirname $0)/pip $3/bin/pip',
        "pip": f"""
            case $1 in
                wheel) mkdir -p $3 && touch $3/kraftlab-0.1.0-any.whl $3/kraftlab-0.2.0-any.whl ;;
                install) ls $5 && echo {shlex.quote(f"#!/bin/bash{chr(10)}{kraftlab}")} > $(dirname $0)/kraftlab
                    chmod +x $(dirname $0)/kraftlab ;;
            esac""",
    }
    for name, text in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

"""`kraftlab certificates`: a certificate authority for a cluster, and the certificates of its nodes and users."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..command_groups import CommandGroup
from ..output import Output, WrongUse, json_option

DIRECTORY = "certificates"

_Command = TypeVar("_Command", bound=Callable[..., Any])

_directory_option = click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIRECTORY,
    show_default=True,
    metavar="DIR",
    help="Folder of the authority and its certificates.",
)
_force_option = click.option("--force", is_flag=True, help="Replace files that exist.")
_password_option = click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="File with the password in its first line, - for standard input; never on the command line, which others can see.",
)


def _days_option(default: str) -> Callable[[_Command], _Command]:
    return click.option("--days", type=click.IntRange(1, 36500), metavar="N", help=f"Days until it expires (default: {default}).")


@click.group(
    "certificates",
    cls=CommandGroup,
    epilog="""\b
Examples:
  kraftlab certificates create-ca
  kraftlab certificates issue --broker 3 --host kafka3.example.org --host 10.0.0.3
  kraftlab certificates issue --user alice
  kraftlab certificates show certificates/broker-3.pem
  kraftlab certificates renew certificates/broker-3.pem""",
)
def certificates() -> None:
    """Create a certificate authority (CA), and issue certificates for nodes and users."""


@certificates.command(
    "create-ca",
    short_help="Create a certificate authority.",
    epilog="""\b
Examples:
  kraftlab certificates create-ca
  kraftlab certificates create-ca --directory /etc/kraftlab/ca --name 'Example CA' --days 1825

\b
Writes ca.pem, the truststore of every node and client, and ca.key. With ca.key one can become any node and any user:
keep it away from the nodes, which do not need it.""",
)
@_directory_option
@click.option("--name", default="kraftlab CA", show_default=True, metavar="NAME", help="Common name of the authority.")
@_days_option("3650")
@_force_option
@json_option
def create_ca(directory: Path, name: str, days: int | None, force: bool, as_json: bool) -> int:
    """Create an authority: a key, and a certificate that it signs itself."""
    from kraftlab.certificates import authority, folder

    path = folder.create_authority(directory, name, days or authority.AUTHORITY_DAYS, replace=force)
    out = Output(as_json)
    _report(out, "Created", path, None)
    out.lines([f"Its key is {directory / folder.AUTHORITY_KEY}; keep it secret, it is needed to issue and renew."])
    return DONE


@certificates.command(
    "issue",
    short_help="Issue a certificate for a node or a user.",
    epilog="""\b
Examples:
  kraftlab certificates issue --broker 3 --host kafka3.example.org --host 10.0.0.3
  kraftlab certificates issue --controller 1
  kraftlab certificates issue --user alice
  kraftlab certificates issue --user alice --pkcs12 --password-file alice.password
  kraftlab certificates issue --user alice --password-file -   # reads standard input; the key is encrypted

\b
Writes one PEM file with key and certificate, as ssl.keystore.location takes it with ssl.keystore.type=PEM. The common name is
broker-3, controller-1 or alice.""",
)
@_directory_option
@click.option("--broker", type=click.IntRange(0, 2**31 - 1), metavar="ID", help="For this broker: servers and clients.")
@click.option("--controller", type=click.IntRange(0, 2**31 - 1), metavar="ID", help="For this controller: servers and clients.")
@click.option("--user", metavar="NAME", help="For this user: clients only.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Host name or IP address of the node; repeatable (default: localhost, 127.0.0.1, ::1 and this machine's name).",
)
@_days_option("365")
@click.option("--pkcs12", is_flag=True, help="Write a PKCS12 store for Java; needs --password-file.")
@_password_option
@_force_option
@json_option
def issue(
    directory: Path,
    broker: int | None,
    controller: int | None,
    user: str | None,
    hosts: tuple[str, ...],
    days: int | None,
    pkcs12: bool,
    password_file: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Issue a certificate with a new key for a broker, a controller or a user."""
    from kraftlab.certificates import authority, folder

    named = {"broker": broker, "controller": controller, "user": user}
    given = [(kind, value) for kind, value in named.items() if value is not None]
    if len(given) != 1:
        raise _wrong("issue", "give one of --broker, --controller and --user")
    if user is not None and hosts:
        raise _wrong("issue", "--host is for nodes; a user's certificate has no hosts")
    if pkcs12 and password_file is None:
        raise _wrong("issue", "--pkcs12 needs --password-file FILE, or - for standard input")
    kind, value = given[0]
    if user is not None and authority.is_node(user.lower()):
        raise _wrong("issue", f"{user} is the name of a node; use --{user.lower().replace('-', ' ')}")
    password = _password(password_file)
    path = folder.issue(
        directory,
        str(value) if kind == "user" else f"{kind}-{value}",
        hosts,
        days or authority.CERTIFICATE_DAYS,
        password=password,
        as_pkcs12=pkcs12,
        replace=force,
    )
    _report(Output(as_json), "Issued", path, password)
    return DONE


@certificates.command(
    "show",
    short_help="Show certificates and when they expire.",
    epilog="""\b
Examples:
  kraftlab certificates show certificates/*.pem
  kraftlab certificates show certificates/broker-3.pem --within 30   # exit code 1 if it expires within 30 days
  kraftlab certificates show alice.p12 --password-file alice.password --json""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--within",
    type=click.IntRange(0, 36500),
    default=0,
    metavar="DAYS",
    help="Exit with code 1 if a certificate expires within this time (default: if one is not valid now).",
)
@_password_option
@json_option
def show(files: tuple[Path, ...], within: int, password_file: Path | None, as_json: bool) -> int:
    """Show subjects, names, usages and ends of the certificates in PEM files and PKCS12 stores."""
    from kraftlab.certificates import folder

    from .text import document, lines

    password, now = _password(password_file), datetime.now(UTC)
    found = [document(str(path), each, now) for path in files for each in folder.read_certificates(path, password)]
    out = Output(as_json)
    out.lines(lines(found))
    out.result({"certificates": found})
    is_due = any(not each["is_valid_now"] or int(str(each["days_left"])) < within for each in found)
    return FAILED if is_due else DONE


@certificates.command(
    "renew",
    short_help="Replace certificates by ones that expire later.",
    epilog="""\b
Examples:
  kraftlab certificates renew certificates/broker-3.pem
  kraftlab certificates renew /etc/kraftlab/broker-3.pem --directory /etc/kraftlab/ca --days 90
  kraftlab certificates renew certificates/ca.pem   # the authority keeps its key: issued certificates stay valid

\b
Names and usages stay, and the key is new. The file is replaced in one step: nodes that use it load the new one by
themselves.""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the authority (default: the folder of the file).",
)
@_days_option("365, of an authority 3650")
@_password_option
@json_option
def renew(files: tuple[Path, ...], directory: Path | None, days: int | None, password_file: Path | None, as_json: bool) -> int:
    """Renew certificates of nodes and users, or the authority's own."""
    from kraftlab.certificates import folder

    password, out = _password(password_file), Output(as_json)
    documents = []
    for path in files:
        folder.renew(path, directory, days, password=password)
        documents.append(_report(out, "Renewed", path, password, prints_json=False))
    out.result({"certificates": documents})
    return DONE


def _report(out: Output, verb: str, path: Path, password: str | None, *, prints_json: bool = True) -> dict[str, object]:
    """Print the certificate that was written to a file, and return its document."""
    from kraftlab.certificates import folder

    from .text import document

    written = document(str(path), folder.read_certificates(path, password)[0], datetime.now(UTC))
    names = written["names"]
    hosts = f" for {', '.join(names)}" if isinstance(names, list) and names else ""
    out.lines([f"{verb} {path} ({written['subject']}){hosts}; it expires at {written['not_after']}."])
    if prints_json:
        out.result(written)
    return written


def _password(path: Path | None) -> str | None:
    """Return the first line of a file or of standard input. None without a file."""
    if path is None:
        return None
    data = sys.stdin.buffer.readline() if str(path) == "-" else path.read_bytes()
    source = "standard input" if str(path) == "-" else str(path)
    try:
        first = data.split(b"\n")[0].rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise WrongUse(f"Error: the password in {source} is not UTF-8; write one in UTF-8") from None
    if not first:
        raise WrongUse(f"Error: there is no password in the first line of {source}; write it there")
    return first


def _wrong(command: str, text: str) -> WrongUse:
    return WrongUse(f"Error: {text}\nSee: kraftlab certificates {command} --help")

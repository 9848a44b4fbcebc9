"""Debian packages unpacked into a private folder: no root, nothing on the machine changes.

apt runs with its own lists, cache and empty package status; the source is the machine's own Debian source with the
suite replaced. The machine's apt settings (proxy, certificates, credentials) stay in force.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stacklib import commands
from stacklib.errors import StackError, say

_APT = Path("/etc/apt")
_REMEDY = "use a Debian machine, or give addresses of running servers (MYSQL_CDC_MYSQL_HOST, MYSQL_CDC_KAFKA)"
_UNNEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/perl",
)


@dataclass(frozen=True, slots=True)
class Source:
    """A package source: where it is, the suite, and the option that names its signing keys (may be empty)."""

    uri: str
    suite: str
    signed_by: str

    def stanza(self, suite: str) -> str:
        """Return the deb822 text of this source for another suite."""
        lines = ["Types: deb", f"URIs: {self.uri}", f"Suites: {suite}", "Components: main"]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


def _deb822(text: str) -> Iterable[Mapping[str, str]]:
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in {" ", "\t"} and name:
                fields[name] += "\n" + line
            elif ":" in line:
                key, _, value = line.partition(":")
                name = key.strip().lower()
                fields[name] = value.strip()
        if fields:
            yield fields


def _one_line(text: str) -> Iterable[Mapping[str, str]]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
        if match:
            options = dict(part.split("=", 1) for part in (match[1] or "").split() if "=" in part)
            yield {
                "types": "deb",
                "uris": match[2],
                "suites": match[3],
                "components": match[4],
                "signed-by": options.get("signed-by", ""),
            }


def machine_source(apt: Path = _APT) -> Source:
    """Return the machine's own Debian source (its main archive, not security or third parties).

    Raises:
        StackError: there is none, for example because the machine is not a Debian one.
    """
    sources: list[Mapping[str, str]] = []
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        sources.extend(_deb822(_read(path)))
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]:
        sources.extend(_one_line(_read(path)))
    for fields in sources:
        uri = (fields.get("uris", "").split() or [""])[0]
        usable = fields.get("enabled", "yes").lower() != "no" and "deb" in fields.get("types", "").split()
        if usable and "main" in fields.get("components", "").split() and re.search(r"/debian/?$", uri):
            suite = fields["suites"].split()[0]
            return Source(uri, suite, fields.get("signed-by", ""))
    raise StackError("looking for Debian's package source", f"{apt} names none", _REMEDY)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class PrivateApt:
    """apt with lists, cache and status of its own below ``root``."""

    def __init__(self, root: Path, suite: str | None = None) -> None:
        """Prepare the folders; ``suite`` None means the machine's own suite.

        Raises:
            StackError: apt or dpkg-deb is missing, or the machine has no Debian source.
        """
        commands.require("apt-get", "fetching Debian packages", _REMEDY)
        commands.require("dpkg-deb", "unpacking Debian packages", _REMEDY)
        source = machine_source()
        self._root = root
        for folder in ("lists/partial", "cache/archives/partial", "state", "log"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        (root / "debian.sources").write_text(source.stanza(suite or source.suite), encoding="utf-8")
        settings = {
            "Dir::Etc::sourcelist": root / "debian.sources",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State": root / "state",
            "Dir::State::lists": root / "lists",
            "Dir::State::status": root / "status",
            "Dir::Cache": root / "cache",
            "Dir::Log": root / "log",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
        }
        self._options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

    def update(self, subject: str) -> None:
        """Fetch the package lists.

        Raises:
            StackError: the source cannot be read or is not signed by a key the machine knows.
        """
        say(subject, "reading Debian's package lists")
        output = commands.run(
            ["apt-get", *self._options, "-q", "update"],
            "reading Debian's package lists",
            "run `apt-get update` as root to see whether the machine's package source works",
        )
        # apt-get update warns about an unreachable source and still ends with code 0.
        if re.search(r"^(W|E|Err:)", output, re.MULTILINE) and not list((self._root / "lists").glob("*Packages*")):
            raise commands.failure(
                "reading Debian's package lists", "check the machine's package source", "no list came", output
            )

    def first_available(self, names: Sequence[str]) -> str | None:
        """Return the first of the packages that the source offers."""
        for name in names:
            output = commands.run(["apt-cache", *self._options, "policy", name], f"looking for {name}", _REMEDY)
            if re.search(r"Candidate: (?!\(none\))\S", output):
                return name
        return None

    def unpack(self, names: Sequence[str], target: Path, subject: str) -> None:
        """Download packages with all they depend on and unpack them into ``target``.

        Raises:
            StackError: a package is unknown, or the download fails.
        """
        count = 0

        def progress(line: str) -> None:
            nonlocal count
            if line.startswith("Get:"):
                count += 1
                if count % 20 == 0:
                    say(subject, f"{count} packages downloaded")
            elif line.startswith(("Need to get", "Fetched")):
                say(subject, line.strip().rstrip("."))

        commands.run(
            ["apt-get", *self._options, "-q", "-y", "--download-only", "install", *names],
            f"downloading {', '.join(names)}",
            f"see whether Debian still offers them for {platform.machine()}",
            on_line=progress,
        )
        archives = sorted((self._root / "cache" / "archives").glob("*.deb"))
        say(subject, f"unpacking {len(archives)} packages")
        for archive in archives:
            # Tools around the server pull in perl; the server itself does not use it.
            if re.match(r"(lib)?perl", archive.name):
                continue
            commands.run(["dpkg-deb", "-x", str(archive), str(target)], f"unpacking {archive.name}", "run it again")
        for folder in _UNNEEDED:
            shutil.rmtree(target / folder, ignore_errors=True)


def fetch(names: Sequence[str], target: Path, subject: str, suite: str | None) -> None:
    """Unpack packages and their dependencies into ``target``, which is made when it is not there."""
    work = target / ".apt"
    apt = PrivateApt(work, suite)
    apt.update(subject)
    apt.unpack(names, target, subject)
    shutil.rmtree(work)


def loader(root: Path) -> list[str]:
    """Return the command prefix that runs a program with the unpacked C library instead of the machine's.

    Raises:
        StackError: the unpacked tree has no loader.
    """
    found = sorted(root.glob("usr/lib/*/ld-linux-*.so.*")) + sorted(root.glob("lib/*/ld-linux-*.so.*"))
    if not found:
        raise StackError("running unpacked programs", f"{root} has no loader", f"remove {root} and run it again")
    folders = [found[0].parent, root / "usr/lib/mysql/private"]
    return [str(found[0]), "--library-path", ":".join(str(folder) for folder in folders if folder.is_dir())]

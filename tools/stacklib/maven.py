"""Java archives by coordinate, through Apache Ivy (pyspark and Debian ship it) or Maven."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stacklib import commands, debian
from stacklib.errors import StackError, say
from stacklib.java import Java
from stacklib.locks import build_once
from stacklib.settings import REPOSITORY, cache_dir

Coordinate = tuple[str, str, str]
# Classifier and extension of what is no jar.
Archive = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Request:
    """What to fetch, where to, with which Java, and for which part of the stack (progress lines)."""

    coordinates: Sequence[Coordinate]
    target: Path
    java: Java
    subject: str
    transitive: bool
    archive: Archive | None = None

    @property
    def names(self) -> str:
        return ", ".join(f"{name} {rev}" for _, name, rev in self.coordinates)


_REMEDY = "run it again; if it fails again, see whether the repository still offers these versions"


def fetch(
    coordinates: Sequence[Coordinate], target: Path, java: Java, subject: str, *, transitive: bool = True
) -> None:
    """Copy the archives of some coordinates, and of all they need at run time, into ``target``.

    A user's own Maven settings may name a mirror, which only Maven reads: with such settings Maven goes first.

    Raises:
        StackError: neither Ivy nor Maven brought them.
    """
    _fetch(_Request(coordinates, target, java, subject, transitive))


def fetch_archive(coordinate: Coordinate, archive: Archive, target: Path, java: Java, subject: str) -> Path:
    """Copy one archive that is no jar into ``target`` and return its path.

    Args:
        coordinate: Where it belongs to.
        archive: Its classifier and extension, for example ``("all", "tar.gz")``.
        target: The folder.
        java: The Java that Ivy runs on.
        subject: Part of the stack, for progress lines.

    Raises:
        StackError: neither Ivy nor Maven brought it.
    """
    _fetch(_Request([coordinate], target, java, subject, transitive=False, archive=archive))
    return next(target.glob(f"*.{archive[1]}"))


def _fetch(request: _Request) -> None:
    maven = shutil.which("mvn")
    if maven and (Path.home() / ".m2" / "settings.xml").exists():
        _with_maven(maven, request)
        return
    try:
        _with_ivy(_ivy_jar(), request)
    except StackError:
        if maven is None:
            raise
        say(request.subject, "Ivy did not succeed; trying Maven")
        _with_maven(maven, request)


def _ivy_jar() -> Path:
    """Return Ivy: pyspark's in the virtual environment, else Debian's package unpacked into the cache."""
    for found in sorted(REPOSITORY.glob(".venv/lib/python3.*/site-packages/pyspark/jars/ivy-*.jar")):
        return found
    root = build_once(
        cache_dir() / "ivy-debian", lambda folder: debian.fetch(["ivy"], folder, "ivy", None), "ivy", "Apache Ivy"
    )
    found = root / "usr/share/java/ivy.jar"
    if not found.exists():
        raise StackError("looking for Apache Ivy", "neither pyspark nor Debian has it", "run scripts/bootstrap first")
    return found.resolve()


def ivy_module(coordinates: Sequence[Coordinate], *, transitive: bool, archive: Archive | None = None) -> str:
    """Return the Ivy file that asks for the run-time archives of the coordinates."""
    flag = "true" if transitive else "false"

    def artifact(name: str) -> str:
        if archive is None:
            return ""
        classifier, kind = archive
        return f'<artifact name="{name}" m:classifier="{classifier}" type="{kind}" ext="{kind}"/>'

    lines = [
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="default->default" transitive="{flag}">'
        f"{artifact(name)}</dependency>"
        for org, name, rev in coordinates
    ]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="local" module="stack"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>\n"
    )


def _with_ivy(jar: Path, request: _Request) -> None:
    count = 0

    def progress(line: str) -> None:
        nonlocal count
        if "[SUCCESSFUL" in line:
            count += 1
            if count % 10 == 0:
                say(request.subject, f"{count} archives downloaded")

    say(request.subject, f"resolving {request.names} (up to a minute)")
    with TemporaryDirectory(prefix="stack-ivy-") as folder:
        module = Path(folder) / "ivy.xml"
        module.write_text(
            ivy_module(request.coordinates, transitive=request.transitive, archive=request.archive), encoding="utf-8"
        )
        command = [
            request.java.program,
            *request.java.tool_options,
            "-jar",
            str(jar),
            "-cache",
            str(cache_dir() / "ivy"),
        ]
        command += ["-ivy", str(module), "-confs", "default"]
        command += ["-retrieve", str(request.target / "[artifact]-[revision](-[classifier]).[ext]")]
        output = commands.run(command, f"fetching {request.names}", _REMEDY, on_line=progress)
    if re.search(r"UNRESOLVED DEPENDENCIES|FAILED DOWNLOADS", output):
        raise commands.failure(f"fetching {request.names}", _REMEDY, "some archives did not come", output)
    _check(request, output)


def _check(request: _Request, output: str) -> None:
    count = len(list(request.target.glob(f"*.{request.archive[1] if request.archive else 'jar'}")))
    if count == 0:
        raise commands.failure(f"fetching {request.names}", _REMEDY, "no archives came", output)
    say(request.subject, f"{count} archives ready")


def pom(coordinates: Sequence[Coordinate], *, transitive: bool, archive: Archive | None = None) -> str:
    """Return the Maven project that depends on the coordinates."""
    what = "" if archive is None else f"<classifier>{archive[0]}</classifier><type>{archive[1]}</type>"
    nothing = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    lines = [
        f"<dependency><groupId>{org}</groupId><artifactId>{name}</artifactId><version>{rev}</version>"
        f"{what}{'' if transitive else nothing}</dependency>"
        for org, name, rev in coordinates
    ]
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>local</groupId><artifactId>stack</artifactId>"
        f"<version>1</version><dependencies>{''.join(lines)}</dependencies></project>\n"
    )


def _with_maven(maven: str, request: _Request) -> None:
    say(request.subject, f"resolving {request.names} with Maven (up to some minutes)")
    with TemporaryDirectory(prefix="stack-maven-") as folder:
        project = Path(folder) / "pom.xml"
        project.write_text(
            pom(request.coordinates, transitive=request.transitive, archive=request.archive), encoding="utf-8"
        )
        command = [maven, "-q", "-B", "-f", str(project), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={request.target}", "-DincludeScope=runtime"]
        output = commands.run(command, f"fetching {request.names}", _REMEDY, env=request.java.environment())
    _check(request, output)

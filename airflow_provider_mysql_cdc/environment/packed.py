"""Put interpreter, packages and this package's core into one archive that Spark unpacks on every machine.

``spark-submit --archives environment.tar.gz#environment`` unpacks it into the working directory of driver (in cluster
mode) and executors, where ``./environment/bin/python`` is the interpreter. The archive's bytes depend on its contents
only.

Source: spark.apache.org/docs/latest/api/python/user_guide/python_packaging.html (Spark 4.x).
"""

from __future__ import annotations

import compileall
import gzip
import io
import json
import os
import py_compile
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.environment import distributions, interpreter
from airflow_provider_mysql_cdc.environment.interpreter import Interpreter

MANIFEST = "mysql-cdc-environment.json"
"""The first file of an archive: which versions it holds."""
# Its libraries come first, and nobody's own packages (~/.local) take part.
_LAUNCHER = """\
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/../shared${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" PYTHONNOUSERSITE=1 \\
  exec "$here/python{minor}" "$@"
"""
# Nobody else looks which Python the machines of the cluster have; Spark brings the words to the driver.
_LINKED = """\
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
found=$({program} -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 78
if [ "$found" != {minor} ]; then
  echo "PYTHON_VERSION_MISMATCH" {program} "is Python $found, this environment was packed for Python {minor}" >&2
  exit 78
fi
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/../packages" PYTHONNOUSERSITE=1 exec {program} "$@"
"""
# Level 6 packs 138 MB to 46 instead of 49 and takes three seconds more (measured).
_LEVEL = 3
Log = Callable[[str], None]


def pack(
    output: Path, *, python: str | None = None, on_nodes: str | None = None, more: Iterable[str] = (), log: Log = print
) -> dict[str, Any]:
    """Write the archive and return its manifest.

    Args:
        output: The file to write; it is there whole or not at all.
        python: Path or version of the interpreter to pack; None takes the one that this one was made from.
        on_nodes: Path of an interpreter of the same minor version on all machines; it is used there, none is packed.
        more: Names of further installed distributions.
        log: Takes one line of text.

    Raises:
        ConfigError: Something is missing, or cannot be packed.
    """
    here = interpreter.ask(sys.executable)
    wanted = interpreter.ask(interpreter.find(python)) if python else here
    found = distributions.needed(more)
    versions = {name: d.version for name, d in found.items()}
    manifest = {
        "package": __version__,
        "python": ".".join(map(str, wanted.version)),
        "platform": wanted.platform,
        "interpreter": on_nodes or "packed",
        "packages": versions,
    }
    with tempfile.TemporaryDirectory(prefix="mysql-cdc-environment-") as scratch:
        root = Path(scratch, "root")
        packages = root / ("packages" if on_nodes else interpreter.within(wanted, wanted.packages))
        if not on_nodes:
            _copy(root, interpreter.files(wanted))
        if wanted.runs_packages_of(here):
            for distribution in found.values():
                _copy(packages, distributions.installed_files(distribution))
        else:
            log(f"installing {len(found)} packages for Python {wanted.minor}")
            _install(wanted, packages, versions)
        _copy(packages, distributions.own_files())
        _write_launchers(root / "bin", wanted.minor, on_nodes)
        _compile(root, wanted, here)
        _check(root, wanted, on_nodes)
        _write(output, root, manifest)
    log(f"{output}: {output.stat().st_size / 1e6:.1f} MB, Python {manifest['python']}, {len(found)} packages")
    return manifest


def read_manifest(archive: Path) -> dict[str, Any] | None:
    """Return the manifest of an archive that ``pack`` wrote, or None when it is another file.

    Args:
        archive: The file.
    """
    try:
        with tarfile.open(archive, "r:*") as tar:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == MANIFEST else None
            found = json.loads(content.read()) if content else None
    except (OSError, EOFError, tarfile.TarError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _copy(root: Path, found: Iterator[tuple[str, Path]]) -> None:
    for name, path in found:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _install(wanted: Interpreter, target: Path, versions: dict[str, str]) -> None:
    """Install packages for another interpreter with uv, or with its own pip; their settings and caches hold."""
    pinned = [f"{name}=={version}" for name, version in versions.items()]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    program = str(wanted.program)
    command = [uv, "pip", "install", "--python", program] if uv else [program, "-m", "pip", "install"]
    done = subprocess.run(
        [*command, "--target", str(target), *pinned],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise ConfigError(
            f"the packages for Python {wanted.minor} cannot be installed",
            where=" ".join(command),
            why=done.stderr.strip()[-2000:],
            remedy="see whether the package index can be reached (UV_* and PIP_* variables are passed on)",
        )


def _write_launchers(folder: Path, minor: str, on_nodes: str | None) -> None:
    text = (_LINKED if on_nodes else _LAUNCHER).format(program=shlex.quote(on_nodes or ""), minor=minor)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)


def _compile(root: Path, wanted: Interpreter, here: Interpreter) -> None:
    """Compile all modules once here; unpacked files have other times, which must not matter (PEP 552)."""
    if wanted.version[:2] == here.version[:2] and wanted.tag == here.tag:
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(str(root), quiet=2, stripdir=str(root), invalidation_mode=mode)
        return
    options = ["-q", "-q", "-s", str(root), "--invalidation-mode", "unchecked-hash"]
    subprocess.run([str(wanted.program), "-m", "compileall", *options, str(root)], capture_output=True, check=False)


def _check(root: Path, wanted: Interpreter, on_nodes: str | None) -> None:
    """Run the packed interpreter and import the core with it.

    Raises:
        ConfigError: It does not start, or something is missing.
    """
    if on_nodes and not Path(on_nodes).exists():
        return  # it is on the machines of the cluster only
    code = "import airflow_provider_mysql_cdc.spark.jobs, sys; print('%d.%d' % sys.version_info[:2])"
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    program = str(root / "bin" / "python")
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False, env=env)
    if done.returncode or done.stdout.strip() != wanted.minor:
        raise ConfigError(
            "the packed environment does not work",
            where=on_nodes or str(wanted.program),
            why=done.stderr.strip()[-2000:] or f"it is Python {done.stdout.strip()}, wanted was {wanted.minor}",
            remedy="name an interpreter of this minor version with --on-nodes, or let --python name theirs"
            if on_nodes
            else "name another interpreter with --python; those of uv (uv python install) can be moved",
        )


def _write(output: Path, root: Path, manifest: dict[str, Any]) -> None:
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=_LEVEL, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            text = json.dumps(manifest, indent=1).encode()
            head = tarfile.TarInfo(MANIFEST)
            head.size, head.mode = len(text), 0o644
            tar.addfile(head, io.BytesIO(text))
            for path in sorted(root.rglob("*")):
                tar.add(path, path.relative_to(root).as_posix(), recursive=False, filter=_plain)
        partial.replace(output)
    except OSError as error:
        raise ConfigError("the archive cannot be written", where=str(output), why=str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member

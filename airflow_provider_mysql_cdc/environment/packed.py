"""Pack interpreter, packages and this package's core into one archive that Spark unpacks on every machine.

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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.environment import interpreter
from airflow_provider_mysql_cdc.environment.interpreter import Interpreter

MANIFEST = "mysql-cdc-environment.json"
"""The first file of an archive; it lists the versions in the archive."""
# The packed libraries come first, and packages of the user (~/.local) are not used.
_LAUNCHER = """\
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/../shared${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" PYTHONNOUSERSITE=1 \\
  exec "$here/python{minor}" "$@"
"""
# Nothing else checks the Python version on the machines of the cluster; Spark passes the message to the driver.
_NODE_LAUNCHER = """\
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
found=$({program} -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 78
if [ "$found" != {minor} ]; then
  echo "PYTHON_VERSION_MISMATCH" {program} "is Python $found, this environment was packed for Python {minor}" >&2
  exit 78
fi
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/../packages" PYTHONNOUSERSITE=1 exec {program} "$@"
"""
# Level 6 packs 138 MB to 46 MB instead of 49 MB and takes three seconds longer (measured).
_COMPRESSION_LEVEL = 3


def pack(
    output: Path, *, python: str | None = None, on_nodes: str | None = None, more: Iterable[str] = (), log: Log = print
) -> dict[str, Any]:
    """Write the archive and return its manifest.

    Args:
        output: The file to write; it is written completely or not at all.
        python: Path or version of the interpreter to pack; None packs the current one, outside of its virtual
            environment.
        on_nodes: Path of an interpreter of the same minor version on all machines, which is used in place of a packed
            one.
        more: Names of additional installed distributions.
        log: Takes one line of text.

    Raises:
        ConfigError: A package or an interpreter is missing, or cannot be packed.
    """
    own_interpreter = interpreter.describe_interpreter(sys.executable)
    packed_interpreter = (
        interpreter.describe_interpreter(interpreter.find_interpreter(python)) if python else own_interpreter
    )
    required = interpreter.required_distributions(more)
    versions = {name: d.version for name, d in required.items()}
    manifest = {
        "package": __version__,
        "python": ".".join(map(str, packed_interpreter.version)),
        "platform": packed_interpreter.platform,
        "interpreter": on_nodes or "packed",
        "packages": versions,
    }
    with tempfile.TemporaryDirectory(prefix="mysql-cdc-environment-") as scratch:
        root = Path(scratch, "root")
        packages = root / (
            "packages" if on_nodes else interpreter.relative_to_prefix(packed_interpreter, packed_interpreter.packages)
        )
        if not on_nodes:
            _copy(root, interpreter.interpreter_files(packed_interpreter))
        if packed_interpreter.is_compatible_with(own_interpreter):
            for distribution in required.values():
                _copy(packages, interpreter.installed_files(distribution))
        else:
            log(f"installing {len(required)} packages for Python {packed_interpreter.minor}")
            _install(packed_interpreter, packages, versions)
        _copy(packages, interpreter.own_files())
        _write_launchers(root / "bin", packed_interpreter.minor, on_nodes)
        _compile(root, packed_interpreter, own_interpreter)
        _check_environment(root, packed_interpreter, on_nodes)
        _write_archive(output, root, manifest)
    log(f"{output}: {output.stat().st_size / 1e6:.1f} MB, Python {manifest['python']}, {len(required)} packages")
    return manifest


def read_manifest(archive: Path) -> dict[str, Any] | None:
    """Return the manifest of an archive that ``pack`` wrote, or None for any other file.

    Args:
        archive: The file.
    """
    try:
        with tarfile.open(archive, "r:*") as tar:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == MANIFEST else None
            manifest = json.loads(content.read()) if content else None
    except (OSError, EOFError, tarfile.TarError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _copy(root: Path, files: Iterator[tuple[str, Path]]) -> None:
    for name, path in files:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _install(packed_interpreter: Interpreter, target: Path, versions: dict[str, str]) -> None:
    """Install packages for another interpreter with uv, or with its own pip, using their settings and caches."""
    pinned = [f"{name}=={version}" for name, version in versions.items()]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    program = str(packed_interpreter.program)
    command = [uv, "pip", "install", "--python", program] if uv else [program, "-m", "pip", "install"]
    result = subprocess.run(
        [*command, "--target", str(target), *pinned],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        raise ConfigError(
            f"the packages for Python {packed_interpreter.minor} cannot be installed",
            where=" ".join(command),
            why=result.stderr.strip()[-2000:],
            remedy="check that the package index can be reached (UV_* and PIP_* variables are passed on)",
        )


def _write_launchers(folder: Path, minor: str, on_nodes: str | None) -> None:
    text = (_NODE_LAUNCHER if on_nodes else _LAUNCHER).format(program=shlex.quote(on_nodes or ""), minor=minor)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)


def _compile(root: Path, packed_interpreter: Interpreter, own_interpreter: Interpreter) -> None:
    """Compile all modules once; unpacking changes file times, on which the result must not depend (PEP 552)."""
    if packed_interpreter.version[:2] == own_interpreter.version[:2] and packed_interpreter.tag == own_interpreter.tag:
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(str(root), quiet=2, stripdir=str(root), invalidation_mode=mode)
        return
    options = ["-q", "-q", "-s", str(root), "--invalidation-mode", "unchecked-hash"]
    subprocess.run(
        [str(packed_interpreter.program), "-m", "compileall", *options, str(root)], capture_output=True, check=False
    )


def _check_environment(root: Path, packed_interpreter: Interpreter, on_nodes: str | None) -> None:
    """Run the packed interpreter and import the core with it.

    Raises:
        ConfigError: It does not start, or a module is missing.
    """
    if on_nodes and not Path(on_nodes).exists():
        return  # it is on the machines of the cluster only
    code = "import airflow_provider_mysql_cdc.spark.jobs, sys; print('%d.%d' % sys.version_info[:2])"
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    program = str(root / "bin" / "python")
    result = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False, env=env)
    if result.returncode or result.stdout.strip() != packed_interpreter.minor:
        raise ConfigError(
            "the packed environment does not work",
            where=on_nodes or str(packed_interpreter.program),
            why=result.stderr.strip()[-2000:]
            or f"it is Python {result.stdout.strip()}, expected was {packed_interpreter.minor}",
            remedy="use an interpreter of this minor version for --on-nodes, or pass its version with --python"
            if on_nodes
            else "choose another interpreter with --python; those of uv (uv python install) can be moved",
        )


def _write_archive(output: Path, root: Path, manifest: dict[str, Any]) -> None:
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=_COMPRESSION_LEVEL, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            text = json.dumps(manifest, indent=1).encode()
            header = tarfile.TarInfo(MANIFEST)
            header.size, header.mode = len(text), 0o644
            tar.addfile(header, io.BytesIO(text))
            for path in sorted(root.rglob("*")):
                tar.add(path, path.relative_to(root).as_posix(), recursive=False, filter=_reproducible_member)
        partial.replace(output)
    except OSError as error:
        raise ConfigError(
            "the archive cannot be written", where=str(output), why=str(error), remedy="use another path for --output"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _reproducible_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member

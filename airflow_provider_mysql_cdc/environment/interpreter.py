"""What a packed environment is made of: a Python interpreter's files, and the installed packages that the core
needs.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

_DESCRIBE_SCRIPT = """
import json, os, site, sys, sysconfig
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "tag": sys.implementation.cache_tag,
    "platform": sysconfig.get_platform(),
    "program": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
    "virtual": sys.prefix != sys.base_prefix,
    "prefix": sys.base_prefix,
    "stdlib": os.path.dirname(os.path.realpath(os.__file__)),
    "packages": site.getsitepackages([sys.base_prefix])[0],
}))
"""
# Tests, editors and files that are only used to build other programs.
_EXCLUDED = re.compile(
    r"(test|idlelib|tkinter|turtledemo|turtle\.py|lib2to3|ensurepip|pydoc_data|site-packages|dist-packages|config-.*)(/|$)"
    r"|(.*/)?(__pycache__|tests?|idle_test)(/|$)"
)
# Libraries of the C library, which must be those of the machine that runs the program (ld.so(8)).
_SYSTEM_LIBRARY = re.compile(
    r"(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libutil|libresolv|libnsl)\.so\b.*"
)
_LIBRARY = re.compile(r"^\s*(\S+) => (/\S+) \(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter outside of any virtual environment.

    Args:
        version: Its version, three numbers.
        tag: Implementation and minor version for which extension modules are built, for example ``cpython-311``.
        platform: For example ``linux-x86_64``.
        program: Path of its program.
        prefix: The folder to which its paths are relative.
        stdlib: The folder of its standard library.
        packages: The folder of installed packages.
    """

    version: tuple[int, int, int]
    tag: str
    platform: str
    program: Path
    prefix: Path
    stdlib: Path
    packages: Path

    @property
    def minor(self) -> str:
        """Return for example ``3.11``; PySpark requires the same on the driver and on the executors."""
        return f"{self.version[0]}.{self.version[1]}"

    def is_compatible_with(self, other: Interpreter) -> bool:
        """Return whether packages installed for another interpreter run in this one."""
        return (self.tag, self.platform) == (other.tag, other.platform)


def describe_interpreter(program: str) -> Interpreter:
    """Return the description of an interpreter; for a virtual environment, of the interpreter it was created from.

    Debian's ``site`` names other folders of packages outside of a virtual environment than inside, for equal arguments
    (``dist-packages``), so the interpreter describes itself.

    Args:
        program: Its path.

    Raises:
        ConfigError: It cannot be run.
    """
    description = _run_describe_script(program)
    if description["virtual"]:
        description = _run_describe_script(description["program"])
    paths = {name: Path(description[name]) for name in ("program", "prefix", "stdlib", "packages")}
    return Interpreter(tuple(description["version"]), description["tag"], description["platform"], **paths)


def _run_describe_script(program: str) -> dict[str, Any]:
    try:
        result = subprocess.run(
            [program, "-c", _DESCRIBE_SCRIPT], capture_output=True, text=True, timeout=60, check=True
        )
        return dict(json.loads(result.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(
            "the interpreter cannot be run",
            where=program,
            why=str(getattr(error, "stderr", "") or error).strip(),
            remedy="choose one with --python, as a path or as a version such as 3.12",
        ) from error


def find_interpreter(path_or_version: str) -> str:
    """Return the program of an interpreter by its path or version.

    Args:
        path_or_version: A path, or a version such as ``3.12``; uv also finds the versions that it manages.

    Raises:
        ConfigError: There is no such interpreter.
    """
    if not re.fullmatch(r"\d+(\.\d+)*", path_or_version):
        return path_or_version
    if uv := shutil.which("uv"):
        result = subprocess.run([uv, "python", "find", path_or_version], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return result.stdout.strip()
    program = shutil.which(f"python{path_or_version}")
    if program is None:
        raise ConfigError(
            f"Python {path_or_version} was not found",
            where="PATH",
            remedy=f"install it (uv python install {path_or_version}), or pass its path with --python",
        )
    return program


def interpreter_files(interpreter: Interpreter) -> Iterator[tuple[str, Path]]:
    """Yield each file of an interpreter's program and standard library: name in the archive, and path.

    Raises:
        ConfigError: Its program would not find its standard library after a move.
    """
    yield f"bin/python{interpreter.minor}", interpreter.program
    stdlib_name = relative_to_prefix(interpreter, interpreter.stdlib)
    for path in sorted(interpreter.stdlib.rglob("*")):
        name = path.relative_to(interpreter.stdlib).as_posix()
        if path.is_file() and not _EXCLUDED.match(name):
            yield f"{stdlib_name}/{name}", path
    for name, library in shared_libraries(interpreter):
        yield f"shared/{name}", library


def relative_to_prefix(interpreter: Interpreter, path: Path) -> str:
    """Return a path relative to the interpreter's prefix.

    Raises:
        ConfigError: The path is outside of the prefix.
    """
    for prefix in (interpreter.prefix, interpreter.prefix.resolve()):
        if path.is_relative_to(prefix):
            return path.relative_to(prefix).as_posix()
    raise ConfigError(
        "this interpreter cannot be moved",
        where=str(interpreter.program),
        why=f"{path} is not inside {interpreter.prefix}",
        remedy="choose another one with --python; those of uv (uv python install) can be moved",
    )


def shared_libraries(interpreter: Interpreter) -> list[tuple[str, Path]]:
    """Return the shared libraries that program and standard library load, without those of the C library.

    Source: ldd(1); a library that is not found must exist on the machine that runs the program.
    """
    ldd = shutil.which("ldd")
    if ldd is None:
        return []
    modules = sorted((interpreter.stdlib / "lib-dynload").glob("*.so"))
    excluded = re.compile(r"(_test\w*|_tkinter|_ctypes_test|_xxtestfuzz|_curses\w*|_dbm|_gdbm|nis|readline)\..*")
    programs = [interpreter.program, *(m for m in modules if not excluded.match(m.name))]
    result = subprocess.run([ldd, *map(str, programs)], capture_output=True, text=True, check=False)
    library_paths = {name: Path(path) for name, path in _LIBRARY.findall(result.stdout)}
    return sorted((name, path) for name, path in library_paths.items() if not _SYSTEM_LIBRARY.match(name))


OWN_DISTRIBUTION = "airflow-provider-mysql-cdc"
PACKAGE = Path(__file__).resolve().parent.parent
# The parts of this package that drivers and executors run.
_PACKAGE_PARTS = ("__init__.py", "py.typed", "cdc", "spark", "spark_jobs")
# Only Airflow's side needs these; pyspark comes with the cluster's Spark (SPARK_HOME/python).
_NOT_NEEDED = re.compile(r"apache-airflow.*|pyspark.*|sqlalchemy")
# Extras that drivers and executors use: packed where they are installed.
_DRIVER_EXTRAS = ("avro", "native")
NameAndExtras = tuple[str, frozenset[str]]
"""A distribution and its extras."""


def required_distributions(more: Iterable[str] = ()) -> dict[str, metadata.Distribution]:
    """Return the installed distributions that the core needs, by name, with their own dependencies.

    Args:
        more: Names of additional distributions, such as one with converters.

    Raises:
        ConfigError: A distribution is not installed.
    """
    own_distribution = _installed(OWN_DISTRIBUTION)
    distributions = _with_dependencies(
        [
            *_requirements_of(own_distribution, frozenset(), _NOT_NEEDED),
            *((_normalized_name(name), frozenset[str]()) for name in more),
        ]
    )
    for extra in _DRIVER_EXTRAS:
        with contextlib.suppress(ConfigError):
            distributions |= _with_dependencies(_requirements_of(own_distribution, frozenset((extra,)), _NOT_NEEDED))
    return dict(sorted(distributions.items()))


def _with_dependencies(requirements: Iterable[NameAndExtras]) -> dict[str, metadata.Distribution]:
    distributions: dict[str, metadata.Distribution] = {}
    done: set[NameAndExtras] = set()
    queue = list(requirements)
    while queue:
        requirement = queue.pop()
        if requirement not in done:
            done.add(requirement)
            distributions[requirement[0]] = _installed(requirement[0])
            queue += _requirements_of(distributions[requirement[0]], requirement[1], None)
    return distributions


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"the package {name} is not installed",
            where="the Python environment of this command",
            remedy="run the command with the Python in which this provider is installed (with pip or uv)",
        ) from error


def _requirements_of(
    distribution: metadata.Distribution, extras: frozenset[str], excluded: re.Pattern[str] | None
) -> list[NameAndExtras]:
    # Airflow depends on it; only this function needs it.
    from packaging.requirements import Requirement

    declared = [Requirement(text) for text in distribution.requires or ()]
    applicable = [
        r for r in declared if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in ("", *extras))
    ]
    names = [(_normalized_name(r.name), frozenset(r.extras)) for r in applicable]
    return [(name, more) for name, more in names if excluded is None or not excluded.fullmatch(name)]


def _normalized_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def own_files() -> Iterator[tuple[str, Path]]:
    """Yield each file of this package that drivers and executors run: name below site-packages, and path."""
    # In a checkout the applications are next to the package.
    jobs = {} if (PACKAGE / "spark_jobs").is_dir() else {"spark_jobs": PACKAGE.parent / "spark_jobs"}
    for part in _PACKAGE_PARTS:
        root = jobs.get(part, PACKAGE / part)
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                inner = path.relative_to(root).as_posix()
                name = part if inner == "." else f"{part}/{inner}"
                yield f"{PACKAGE.name}/{name}", path


def installed_files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield each installed file of a distribution: name below site-packages, and path.

    Raises:
        ConfigError: It does not list its files, or is installed editable.
    """
    url = distribution.read_text("direct_url.json") or ""
    if distribution.files is None or re.search(r'"editable":\s*true', url):
        raise ConfigError(
            f"the installed files of {distribution.metadata['Name']} are not known",
            where="the Python environment of this command",
            why="it is installed editable" if url else "it was installed by the system, without a RECORD",
            remedy="install it with pip or uv, not editable; or choose another interpreter with --python",
        )
    for file in distribution.files:
        name = file.as_posix()
        # Programs and manuals are outside of site-packages (../../bin/...).
        if not name.startswith(("../", "/")) and "__pycache__" not in file.parts:
            yield name, Path(str(distribution.locate_file(file)))

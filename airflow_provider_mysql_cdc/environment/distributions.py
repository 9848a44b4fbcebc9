"""The packages that the core needs, as they are installed here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

OWN = "airflow-provider-mysql-cdc"
PACKAGE = Path(__file__).resolve().parent.parent
# What of this package drivers and executors run.
_PARTS = ("__init__.py", "py.typed", "cdc", "spark", "spark_jobs")
# Only Airflow's side needs these; pyspark comes with the cluster's Spark (SPARK_HOME/python).
_NOT_NEEDED = re.compile(r"apache-airflow.*|pyspark.*|sqlalchemy")
# Extras that drivers and executors use: packed where they are installed.
_OF_DRIVERS = ("avro", "native")
Wanted = tuple[str, frozenset[str]]
"""A distribution and its extras."""


def needed(more: Iterable[str] = ()) -> dict[str, metadata.Distribution]:
    """Return the installed distributions that the core needs, by name, with all they need themselves.

    Args:
        more: Names of further distributions, such as one with converters.

    Raises:
        ConfigError: One is not installed.
    """
    own = _installed(OWN)
    found = _with_all(
        [*_required(own, frozenset(), _NOT_NEEDED), *((_normal(name), frozenset[str]()) for name in more)]
    )
    for extra in _OF_DRIVERS:
        with contextlib.suppress(ConfigError):
            found |= _with_all(_required(own, frozenset((extra,)), _NOT_NEEDED))
    return dict(sorted(found.items()))


def _with_all(wanted: Iterable[Wanted]) -> dict[str, metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    done: set[Wanted] = set()
    waiting = list(wanted)
    while waiting:
        one = waiting.pop()
        if one not in done:
            done.add(one)
            found[one[0]] = _installed(one[0])
            waiting += _required(found[one[0]], one[1], None)
    return found


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"the package {name} is not installed",
            where="the environment that packs",
            remedy="run the command with the Python that has this provider installed (with pip or uv)",
        ) from error


def _required(
    distribution: metadata.Distribution, extras: frozenset[str], without: re.Pattern[str] | None
) -> list[Wanted]:
    # Airflow brings it; it is needed only here.
    from packaging.requirements import Requirement

    named = [Requirement(text) for text in distribution.requires or ()]
    wanted = [r for r in named if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in ("", *extras))]
    names = [(_normal(r.name), frozenset(r.extras)) for r in wanted]
    return [(name, more) for name, more in names if without is None or not without.fullmatch(name)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def own_files() -> Iterator[tuple[str, Path]]:
    """Yield each file of this package that drivers and executors run: name among the packages, and path."""
    # In a checkout the applications stand beside the package.
    jobs = {} if (PACKAGE / "spark_jobs").is_dir() else {"spark_jobs": PACKAGE.parent / "spark_jobs"}
    for part in _PARTS:
        root = jobs.get(part, PACKAGE / part)
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                inner = path.relative_to(root).as_posix()
                name = part if inner == "." else f"{part}/{inner}"
                yield f"{PACKAGE.name}/{name}", path


def installed_files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield each installed file of a distribution: name among the packages, and path.

    Raises:
        ConfigError: It does not say which files are its own, or is installed editable.
    """
    url = distribution.read_text("direct_url.json") or ""
    if distribution.files is None or re.search(r'"editable":\s*true', url):
        raise ConfigError(
            f"the files of {distribution.metadata['Name']} are not known",
            where="the environment that packs",
            why="it is installed editable" if url else "it was installed by the system, without a RECORD",
            remedy="install it with pip or uv, not editable; or name another interpreter with --python",
        )
    for file in distribution.files:
        name = file.as_posix()
        # Programs and manuals lie outside (../../bin/...).
        if not name.startswith(("../", "/")) and "__pycache__" not in file.parts:
            yield name, Path(str(distribution.locate_file(file)))

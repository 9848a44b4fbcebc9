"""The installed packages that the core needs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

OWN_DISTRIBUTION = "airflow-provider-mysql-cdc"
PACKAGE = Path(__file__).resolve().parent.parent
# The parts of this package that drivers and executors run.
_PACKAGE_PARTS = ("__init__.py", "py.typed", "cdc", "spark", "spark_jobs")
# Only Airflow's side needs these; pyspark comes with the cluster's Spark (SPARK_HOME/python).
_EXCLUDED = re.compile(r"apache-airflow.*|pyspark.*|sqlalchemy")
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
            *_requirements_of(own_distribution, frozenset(), _EXCLUDED),
            *((_normalized_name(name), frozenset[str]()) for name in more),
        ]
    )
    for extra in _DRIVER_EXTRAS:
        with contextlib.suppress(ConfigError):
            distributions |= _with_dependencies(_requirements_of(own_distribution, frozenset((extra,)), _EXCLUDED))
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

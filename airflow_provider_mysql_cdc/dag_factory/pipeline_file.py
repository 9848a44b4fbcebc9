"""Read pipelines and fleets from a YAML file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from airflow.sdk import DAG

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.dag_factory.fleet import STREAM_SETTINGS, cdc_fleet
from airflow_provider_mysql_cdc.dag_factory.pipeline import cdc_pipeline

SECTIONS = ("defaults", "pipelines", "fleets")


def _parameters(make: Callable[..., dict[str, DAG]]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments that a pipeline or fleet may have in the file."""
    parameters = inspect.signature(make).parameters
    return MappingProxyType({name: given for name, given in parameters.items() if name != "name"})


_PIPELINE, _FLEET = _parameters(cdc_pipeline), _parameters(cdc_fleet)
_MAPPINGS = frozenset(
    name for known in (_PIPELINE, _FLEET) for name, given in known.items() if "Mapping" in str(given.annotation)
)


def pipelines_from_file(path: str | Path) -> dict[str, DAG]:
    """Make the DAGs of all pipelines and fleets in a YAML file; call it at the top level of a DAG file.

    The file has ``pipelines``, with arguments of ``cdc_pipeline`` by name, ``fleets``, with those of ``cdc_fleet``, and
    perhaps ``defaults`` for all of them. A mapping of a pipeline (``properties``, ``default_args`` ...) is merged into
    the default one. Of the defaults a fleet gets what ``cdc_fleet`` takes, and each of its streams the rest; a default
    ``run_for`` holds for pipelines alone.

    Args:
        path: The file; ``Path(__file__).with_name("pipelines.yaml")`` is the one beside the DAG file.

    Returns:
        The DAGs by id.

    Raises:
        ConfigError: The file cannot be read, or a pipeline or fleet is wrong; the text names the file and the place.
            Then none of its DAGs is there, and Airflow shows the text as the DAG file's import error.
    """
    content = _mapping(_load(path), str(path), "the file")
    _check_keys(content, SECTIONS, str(path))
    defaults = _arguments(content.get("defaults"), f"{path}: defaults", _PIPELINE)
    made: dict[str, DAG] = {}
    for section, make in (("pipelines", _pipeline), ("fleets", _fleet)):
        for name, given in _mapping(content.get(section), str(path), section).items():
            where = f"{path}: {section}.{name}"
            own = _make(make, str(path), where, name, given, defaults)
            if twice := sorted(made.keys() & own.keys()):
                raise ConfigError(
                    "two pipelines have a DAG of the same id",
                    where=f"{where}: {', '.join(twice)}",
                    why="one of the two would take the place of the other",
                    remedy="give one of the pipelines another name, or leave that DAG out (dags)",
                )
            made |= own
    return made


def _make(
    make: Callable[[str, Any, Mapping[str, Any], str], dict[str, DAG]],
    path: str,
    where: str,
    name: Any,
    given: Any,
    defaults: Mapping[str, Any],
) -> dict[str, DAG]:
    """Make the DAGs of one entry; name the file and the place in what is wrong with it."""
    if not isinstance(name, str):
        raise ConfigError(
            "the name of a pipeline is not a text",
            where=where,
            why=f"YAML reads it as a {type(name).__name__}",
            remedy="write it in quotes",
        )
    try:
        return make(name, given, defaults, where)
    except ConfigError as error:
        place = error.where if error.where.startswith(path) else f"{path}: {error.where}"
        raise ConfigError(error.what, where=place, why=error.why, remedy=error.remedy) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            "the pipeline cannot be made", where=where, why=str(error), remedy="correct its arguments"
        ) from error


def _pipeline(name: str, given: Any, defaults: Mapping[str, Any], where: str) -> dict[str, DAG]:
    arguments = _merged(defaults, _arguments(given, where, _PIPELINE))
    if not arguments.get("mysql_cdc_conn_id"):
        raise ConfigError(
            "the pipeline names no MySQL CDC connection", where=where, remedy="add mysql_cdc_conn_id: <connection>"
        )
    return cdc_pipeline(name, **arguments)


def _fleet(name: str, given: Any, defaults: Mapping[str, Any], where: str) -> dict[str, DAG]:
    shared = {argument: value for argument, value in defaults.items() if argument in _FLEET}
    if "dags" in shared:
        shared["dags"] = [kind for kind in shared["dags"] if kind != "drain"]
    arguments = _merged(shared, _arguments(given, where, _FLEET))
    of_streams = {a: value for a, value in defaults.items() if a in STREAM_SETTINGS and a not in _FLEET}
    streams = {stream: _stream(own, of_streams) for stream, own in arguments.pop("streams", {}).items()}
    return cdc_fleet(name, streams, **arguments)


def _stream(given: Any, defaults: Mapping[str, Any]) -> Any:
    """Return the arguments of a fleet's stream with the defaults; what is neither text nor mapping is refused later."""
    if isinstance(given, str):
        given = {"mysql_cdc_conn_id": given}
    return _merged(defaults, given) if isinstance(given, Mapping) else given


class _UniqueKeys(yaml.SafeLoader):
    """Read YAML as ``safe_load`` does, and refuse a key that a mapping has twice: the first value would be lost."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Return a mapping as it stands in the file.

        Args:
            anchor: Its name there, for aliases.

        Raises:
            ComposerError: A key stands in it twice; the text names the line.
        """
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"{key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
        return node


def _load(path: str | Path) -> Any:
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), _UniqueKeys)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            "the file of pipelines cannot be read", where=str(path), why=str(error), remedy="correct the file"
        ) from error


def _arguments(given: Any, where: str, known: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    arguments = _mapping(given, where, "a pipeline")
    _check_keys(arguments, list(known), where)
    for name in _MAPPINGS & arguments.keys():
        arguments[name] = _mapping(arguments[name], f"{where}.{name}", name)
    return {name: value for name, value in arguments.items() if value is not None}


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    both = _MAPPINGS & defaults.keys() & given.keys()
    return {**defaults, **given, **{name: {**defaults[name], **given[name]} for name in both}}


def _mapping(value: Any, where: str, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ConfigError(
            f"{what} is not a mapping", where=where, why=f"it is a {type(value).__name__}", remedy="write name: value"
        )
    return dict(value or {})


def _check_keys(given: Mapping[str, Any], known: Any, where: str) -> None:
    for key in (key for key in given if key not in known):
        guess = get_close_matches(str(key), list(known), 1)
        raise ConfigError(
            f"there is no {key!r}" + (f"; did you mean {guess[0]}?" if guess else ""),
            where=where,
            remedy=f"use {', '.join(known)}",
        )

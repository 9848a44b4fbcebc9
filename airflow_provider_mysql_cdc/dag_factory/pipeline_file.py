"""Read pipelines from a YAML file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from airflow.sdk import DAG

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.dag_factory.pipeline import cdc_pipeline

SECTIONS = ("defaults", "pipelines")

_PARAMETERS = MappingProxyType(dict(inspect.signature(cdc_pipeline).parameters))
_MAPPINGS = frozenset(name for name, given in _PARAMETERS.items() if "Mapping" in str(given.annotation))


def pipelines_from_file(path: str | Path) -> dict[str, DAG]:
    """Make the DAGs of all pipelines in a YAML file; call it at the top level of a DAG file.

    The file has ``pipelines``, with arguments of ``cdc_pipeline`` by name, and perhaps ``defaults`` for all of them.
    A mapping of a pipeline (``properties``, ``default_args`` ...) is merged into the default one.

    Args:
        path: The file; ``Path(__file__).with_name("pipelines.yaml")`` is the one beside the DAG file.

    Returns:
        The DAGs by id.

    Raises:
        ConfigError: The file cannot be read, or a pipeline is wrong; the text names the file and the place. Then none
            of its DAGs is there, and Airflow shows the text as the DAG file's import error.
    """
    content = _mapping(_load(path), str(path), "the file")
    _check_keys(content, SECTIONS, str(path))
    defaults = _arguments(content.get("defaults"), f"{path}: defaults")
    pipelines = _mapping(content.get("pipelines"), str(path), "pipelines")
    made: dict[str, DAG] = {}
    for name, given in pipelines.items():
        where = f"{path}: pipelines.{name}"
        if not isinstance(name, str):
            raise ConfigError(
                "the name of a pipeline is not a text",
                where=where,
                why=f"YAML reads it as a {type(name).__name__}",
                remedy="write it in quotes",
            )
        arguments = _merged(defaults, _arguments(given, where))
        if not arguments.get("mysql_cdc_conn_id"):
            raise ConfigError(
                "the pipeline names no MySQL CDC connection", where=where, remedy="add mysql_cdc_conn_id: <connection>"
            )
        try:
            own = cdc_pipeline(name, **arguments)
        except ConfigError as error:
            raise ConfigError(error.what, where=f"{path}: {error.where}", why=error.why, remedy=error.remedy) from error
        except (TypeError, ValueError) as error:
            raise ConfigError(
                "the pipeline cannot be made", where=where, why=str(error), remedy="correct its arguments"
            ) from error
        if twice := sorted(made.keys() & own.keys()):
            raise ConfigError(
                "two pipelines have a DAG of the same id",
                where=f"{where}: {', '.join(twice)}",
                why="one of the two would take the place of the other",
                remedy="give one of the pipelines another name, or leave that DAG out (dags)",
            )
        made |= own
    return made


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


def _arguments(given: Any, where: str) -> dict[str, Any]:
    arguments = _mapping(given, where, "a pipeline")
    _check_keys(arguments, [name for name in _PARAMETERS if name != "name"], where)
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

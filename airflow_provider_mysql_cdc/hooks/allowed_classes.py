"""Which Python classes a configuration may name: those that the deployment allows, and none that anybody can import."""

from __future__ import annotations

from importlib.metadata import entry_points

from airflow.providers.common.compat.sdk import conf

from airflow_provider_mysql_cdc.cdc.config.column_rules import custom_classes
from airflow_provider_mysql_cdc.cdc.config.property_sources import ResolvedProperties
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

ENTRY_POINT_GROUP = "airflow_provider_mysql_cdc.converters"
"""Entry points with which an installed package allows its converters."""
OPTION = ("mysql_cdc", "allowed_classes")
"""Airflow option with further classes, comma-separated."""


def allowed_classes() -> frozenset[str]:
    """Return the dotted paths of the classes that the deployment allows."""
    listed = str(conf.get(*OPTION, fallback="") or "").replace(",", " ").split()
    installed = (point.value.replace(":", ".") for point in entry_points(group=ENTRY_POINT_GROUP))
    return frozenset((*listed, *installed))


def check_classes(resolved: ResolvedProperties) -> None:
    """Refuse converters' classes that are not allowed, before any is imported.

    Args:
        resolved: The properties of all sources.

    Raises:
        ConfigError: There are such classes; the text names their properties, and where to allow them.
    """
    named = custom_classes(resolved.properties)
    refused = sorted(named.keys() - {name for name, path in named.items() if path in allowed_classes()})
    if refused:
        section, option = OPTION
        raise ConfigError(
            "a converter's class is not among those that this deployment allows",
            where=", ".join(f"{name} ({resolved.origins[name]})" for name in refused),
            why="a class is code that runs with the worker's and the job's privileges",
            remedy=f"add its dotted path to Airflow's option [{section}] {option} "
            f"(AIRFLOW__{section.upper()}__{option.upper()}), or install a package that lists it under the entry "
            f"points {ENTRY_POINT_GROUP}",
        )

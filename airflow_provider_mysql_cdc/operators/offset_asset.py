"""The asset whose state stores the offset, and the alias of a task's asset events; also for mapped tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from airflow.sdk import Asset, AssetAlias

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.asset_events import DEFAULT_ALIAS

DEFAULT_ASSET = "mysql_cdc_offsets"
EntryT = TypeVar("EntryT", Asset, AssetAlias)


def reference_asset(asset: Asset | str, arguments: dict[str, Any]) -> Asset:
    """Return the asset that stores the offset, and make it an inlet of a task.

    Airflow gives a task access only to the state of its own inlets and outlets, and deletes the state of an asset that
    nothing references. The asset is not an outlet, because then each success would create an event.

    Args:
        asset: The asset or its name.
        arguments: The operator's arguments, which are changed.

    Raises:
        TypeError: It is neither; Airflow must know the asset when it parses the DAG.
    """
    return _reference(asset, Asset, arguments, ("offset_asset", "inlets", "an Asset or an asset's name"))


def reference_alias(alias: AssetAlias | str, arguments: dict[str, Any]) -> AssetAlias:
    """Return the alias of a task's asset events, and make it an outlet of the task.

    Args:
        alias: The alias or its name.
        arguments: The operator's arguments, which are changed.

    Raises:
        TypeError: It is neither; Airflow must know the alias when it parses the DAG.
    """
    return _reference(alias, AssetAlias, arguments, ("asset_alias", "outlets", "an AssetAlias or an alias's name"))


def _reference(
    given: EntryT | str, kind: type[EntryT], arguments: dict[str, Any], texts: tuple[str, str, str]
) -> EntryT:
    """Return an entry of a task's inlets or outlets, and add it there.

    Args:
        given: The entry or its name.
        kind: Its type.
        arguments: The operator's arguments, which are changed.
        texts: The argument that names it, the argument that lists it, and what may be given.
    """
    argument, listed, wanted = texts
    entry = kind(given) if isinstance(given, str) else given
    if not isinstance(entry, kind):
        raise TypeError(
            f"{argument} is a {type(entry).__name__}; use {wanted} that is known when the DAG is parsed, neither a "
            "template nor the result of a task"
        )
    entries: list[Any] = list(arguments.get(listed) or [])
    arguments[listed] = entries if entry in entries else [*entries, entry]
    return entry


def accessor_of(context: Any, asset: Asset) -> Any:
    """Return Airflow's accessor of an asset's state, or None before Airflow 3.3.

    Raises:
        ConfigError: The asset is not one of the task's inlets or outlets.
    """
    accessors = context.get("asset_state_store")
    if accessors is None:
        return None
    try:
        return accessors[asset]
    except KeyError as error:
        raise ConfigError(
            "the task has no access to the state of the asset that stores its offset",
            where=f"asset {asset.name}",
            why="Airflow grants access for inlets and outlets only, and the asset was not one when the DAG was parsed",
            remedy="pass offset_asset to partial(), not to expand(); pipelines with different topic.prefix values can "
            "share one asset",
        ) from error


def with_offset_asset(arguments: Mapping[str, Any], *, emits_events: bool = True) -> dict[str, Any]:
    """Return the arguments of ``partial()`` with the asset that keeps the offset, and the alias of the events.

    Airflow reads inlets and outlets of a mapped task from the arguments of ``partial()``: when the scheduler and the
    worker read them, ``__init__`` has not run.

    Args:
        arguments: Arguments of the operator that are the same for all mapped tasks.
        emits_events: Whether the task adds asset events.
    """
    complete, defaults = dict(arguments), _default_args(arguments)
    for argument in ("inlets", "outlets"):
        if argument in defaults:
            complete.setdefault(argument, defaults[argument])
    reference_asset(complete.get("offset_asset", defaults.get("offset_asset", DEFAULT_ASSET)), complete)
    if emits_events:
        reference_alias(complete.get("asset_alias", defaults.get("asset_alias", DEFAULT_ALIAS)), complete)
    return complete


def _default_args(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default arguments that hold for a task: of its DAG, its task group, and its own."""
    from airflow.sdk.definitions._internal.contextmanager import DagContext, TaskGroupContext

    dag = arguments.get("dag") or DagContext.get_current()
    group = arguments.get("task_group") or (TaskGroupContext.get_current(dag) if dag else None)
    merged: dict[str, Any] = {}
    for holder in (dag, group):
        merged |= getattr(holder, "default_args", None) or {}
    return merged | (arguments.get("default_args") or {})

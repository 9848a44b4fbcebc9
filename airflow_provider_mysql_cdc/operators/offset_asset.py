"""The asset whose state stores the offset, also for mapped tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.asset_events import EVENT_ALIAS

DEFAULT_ASSET = "mysql_cdc_offsets"


def reference_asset(asset: Asset | str, arguments: dict[str, Any], *, emits_events: bool = True) -> Asset:
    """Return the asset that stores the offset, and make it an inlet of a task.

    Airflow gives a task access only to the state of its own inlets and outlets, and deletes the state of an asset that
    nothing references. The asset is not an outlet, because then each success would create an event.

    Args:
        asset: The asset or its name.
        arguments: The operator's arguments, which are changed.
        emits_events: Whether the task adds asset events, for which it gets the outlet ``EVENT_ALIAS``.

    Raises:
        TypeError: It is neither; Airflow must know the asset when it parses the DAG.
    """
    offset_asset = Asset(asset) if isinstance(asset, str) else asset
    if not isinstance(offset_asset, Asset):
        raise TypeError(
            f"offset_asset is a {type(offset_asset).__name__}; use an Asset or an asset's name that is known when the "
            "DAG is parsed, neither a template nor the result of a task"
        )
    for argument, entry in (("inlets", offset_asset), ("outlets", EVENT_ALIAS))[: 2 if emits_events else 1]:
        entries = list(arguments.get(argument) or [])
        arguments[argument] = entries if entry in entries else [*entries, entry]
    return offset_asset


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
    """Return the arguments of ``partial()`` with the asset that keeps the offset among inlets and outlets.

    Airflow reads inlets and outlets of a mapped task from the arguments of ``partial()``: when the scheduler and the
    worker read them, ``__init__`` has not run.

    Args:
        arguments: Arguments of the operator that are the same for all mapped tasks.
        emits_events: As for ``reference_asset``.
    """
    complete, defaults = dict(arguments), _default_args(arguments)
    for argument in ("inlets", "outlets"):
        if argument in defaults:
            complete.setdefault(argument, defaults[argument])
    asset = complete.get("offset_asset", defaults.get("offset_asset", DEFAULT_ASSET))
    reference_asset(asset, complete, emits_events=emits_events)
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

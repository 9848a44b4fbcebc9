"""Asset events of a task, and the asset whose state stores the offset."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_mysql_cdc.assets.mysql_cdc import pipeline_uri, verification_uri
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


CHANNEL_LOCK = threading.RLock()
"""Held for each request of a thread. Airflow's own channel has a lock (``CommsDecoder``); that of ``dag.test`` has
none, and is away while it answers (``InProcessTestSupervisor``, 3.3)."""


@dataclass(frozen=True, slots=True)
class LockedAccessor:
    """Use Airflow's accessor of an asset's state in several threads.

    Args:
        accessor: ``context["asset_state_store"][asset]``.
    """

    accessor: Any

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        with CHANNEL_LOCK:
            return self.accessor.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value."""
        with CHANNEL_LOCK:
            self.accessor.set(key, value)


DEFAULT_ALIAS = "mysql_cdc"
"""Name of the alias that is an outlet of every task that can move an offset, unless it names another. Airflow creates
an event for each asset among the outlets whenever a task succeeds, also when it did nothing. For an alias it creates
only the events that the task adds, and their assets need not be known before the task runs. Airflow shows all assets
that ever had events through an alias behind all tasks that have the alias, so each stream needs one of its own."""

MAX_EVENT_TABLES = 100
"""Names of tables with differences in the event of a verification."""


@dataclass(frozen=True, slots=True)
class StreamAssets:
    """Name the assets of a task: where the offset is, and through which alias its events come.

    Args:
        offset: The asset whose state stores the offset.
        alias: The alias among the task's outlets.
    """

    offset: Asset
    alias: AssetAlias


def add_run_events(
    context: Any,
    cfg: ConnectorConfig,
    assets: StreamAssets,
    offset: Mapping[str, Any] | None,
    tally: RunTally,
) -> None:
    """Add the events for what a run has written; they replace the events of its earlier jobs and include their counts.

    The asset of the offset gets an event when a batch is complete, the asset of the pipeline when records were written,
    and the asset of a table when records of its rows were written. Each event has the range of its batches and their
    times (``_batch_range``); docs/airflow.md describes the members.

    Args:
        context: Airflow's context.
        cfg: The connector's configuration.
        assets: The assets of the task.
        offset: The stored offset as JSON.
        tally: What the run has written.
    """
    from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL

    if not tally.batches:
        return
    events = context["outlet_events"][assets.alias].asset_alias_events
    with CHANNEL_LOCK:
        events[:] = [event for event in events if event.extra.get("stream") != cfg.topic_prefix]
    batch_range = _batch_range(cfg, offset, tally)
    totals = {**batch_range, "counts": dict(tally.counts), "tables": dict(tally.tables)}
    add_asset_event(context, assets.alias, assets.offset, totals)
    if not any(tally.counts.values()):
        return
    settings = cfg.servers()[0]
    pipeline = pipeline_uri(settings.host, cfg.topic_prefix, settings.port)
    add_asset_event(context, assets.alias, pipeline, totals)
    for table, rows in tally.tables.items():
        if rows and table != OTHERS_LABEL:
            extra = {**batch_range, **_table_members(cfg, table), "records": rows}
            add_asset_event(context, assets.alias, f"{pipeline}/{table}", extra)


def _batch_range(cfg: ConnectorConfig, offset: Mapping[str, Any] | None, tally: RunTally) -> dict[str, Any]:
    """Return what all events of a run have: the stream, its batches with both offsets, and their times."""
    from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import last_change_ms

    return {
        "stream": cfg.topic_prefix,
        "from": tally.start.to_json() if tally.start is not None else None,
        "offset": None if offset is None else dict(offset),
        "batches": tally.batches,
        "last_batch": tally.epoch,
        "started": _time_text(tally.started_ms),
        "ended": _time_text(tally.metrics.at_ms),
        "last_change": _time_text(last_change_ms(tally.metrics.streaming)),
    }


def _table_members(cfg: ConnectorConfig, path: str) -> dict[str, Any]:
    """Return the names of a table and of the topic that has its events."""
    from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
    from airflow_provider_mysql_cdc.cdc.model.table import TableId

    table, topic = TableId.from_path(path), None
    with suppress(ConfigError):  # of an earlier run, before a dispatcher of TiCDC was removed
        topic = table_topic_name(cfg, table)
    return {"database": table.db, "table": table.table, "topic": topic}


def _time_text(time_ms: int | None) -> str | None:
    """Return a time in ISO 8601, in UTC; None when it is not known."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds") if time_ms else None


def add_verification_event(context: Any, cfg: ConnectorConfig, alias: AssetAlias, summary: Mapping[str, Any]) -> None:
    """Add the event of a verification; its extra has the verdict and the totals.

    Args:
        context: Airflow's context.
        cfg: The connector's configuration.
        alias: The task's alias.
        summary: Counts of the verification (``verdict_totals.bounded_json``).
    """
    settings = cfg.servers()[0]
    uri = verification_uri(settings.host, cfg.topic_prefix, settings.port)
    by_verdict: dict[str, list[str]] = {"different": [], "not judged": []}
    for table, counts in summary["tables"].items():
        by_verdict.setdefault(counts["verdict"], []).append(table)
    totals = {name: value for name, value in summary.items() if name not in ("tables", "tables_omitted")}
    extra = {
        "stream": cfg.topic_prefix,
        **totals,
        "different": by_verdict["different"][:MAX_EVENT_TABLES],
        "not_judged": by_verdict["not judged"][:MAX_EVENT_TABLES],
    }
    add_asset_event(context, alias, uri, extra)


def add_asset_event(context: Any, alias: AssetAlias, asset: Asset | str, extra: Mapping[str, Any]) -> None:
    """Add an event of an asset.

    Args:
        context: Airflow's context.
        alias: The task's alias.
        asset: The asset, or its URI; the event reaches each DAG that uses the URI, whatever asset name it uses.
        extra: The event's extra.
    """
    events = context["outlet_events"][alias]
    with CHANNEL_LOCK:  # the streams of a fleet add their events to one alias, each in a thread of its own
        if isinstance(asset, Asset):
            events.add(asset, extra=dict(extra))
            return
        try:
            events.add(Asset.ref(uri=asset), extra=dict(extra))
        except AirflowRuntimeError:  # no DAG references the asset
            events.add(Asset(asset), extra=dict(extra))


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

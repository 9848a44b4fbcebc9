"""Asset events of a task: for its offset, its pipeline and each table, and only when records were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_mysql_cdc.assets.mysql_cdc import pipeline_uri, verification_uri

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

EVENT_ALIAS = AssetAlias("mysql_cdc")
"""Outlet of every task that can move an offset. Airflow creates an event for each asset among the outlets whenever a
task succeeds, also when it did nothing. For an alias it creates only the events that the task adds, and their assets
need not be known before the task runs."""

MAX_EVENT_TABLES = 100
"""Names of tables with differences in the event of a verification."""


def add_run_events(
    context: Any, cfg: ConnectorConfig, offset_asset: Asset, offset: Mapping[str, Any] | None, tally: RunTally
) -> None:
    """Add the events for what a run has written; they replace the events of its earlier jobs and include their counts.

    The asset of the offset gets an event when a batch is complete, the asset of the pipeline when records were written,
    and the asset of a table when records of its rows were written. Each event names its batches: ``batches`` of them,
    from the offset ``from`` to ``offset``.

    Args:
        context: Airflow's context.
        cfg: The connector's configuration.
        offset_asset: The asset that keeps the offset.
        offset: The stored offset as JSON.
        tally: What the run has written.
    """
    from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL

    if not tally.batches:
        return
    context["outlet_events"][EVENT_ALIAS].asset_alias_events.clear()
    start_offset = tally.start.to_json() if tally.start is not None else None
    batch_range = {"from": start_offset, "offset": None if offset is None else dict(offset), "batches": tally.batches}
    add_asset_event(context, offset_asset, {**batch_range, "counts": dict(tally.counts)})
    if not any(tally.counts.values()):
        return
    settings = cfg.connection_settings()
    pipeline = pipeline_uri(settings.host, cfg.topic_prefix, settings.port)
    add_asset_event(context, pipeline, {**batch_range, "counts": dict(tally.counts)})
    for table, rows in tally.tables.items():
        if rows and table != OTHERS_LABEL:
            add_asset_event(context, f"{pipeline}/{table}", {**batch_range, "records": rows})


def add_verification_event(context: Any, cfg: ConnectorConfig, summary: Mapping[str, Any]) -> None:
    """Add the event of a verification; its extra has the verdict and the totals.

    Args:
        context: Airflow's context.
        cfg: The connector's configuration.
        summary: Counts of the verification (``verify_outcome.verify_summary``).
    """
    settings = cfg.connection_settings()
    uri = verification_uri(settings.host, cfg.topic_prefix, settings.port)
    different = [table for table, counts in summary["tables"].items() if counts["findings"]]
    totals = {name: value for name, value in summary.items() if name not in ("tables", "tables_omitted")}
    add_asset_event(context, uri, {**totals, "different": different[:MAX_EVENT_TABLES]})


def add_asset_event(context: Any, asset: Asset | str, extra: Mapping[str, Any]) -> None:
    """Add an event of an asset.

    Args:
        context: Airflow's context.
        asset: The asset, or its URI; the event reaches each DAG that uses the URI, whatever asset name it uses.
        extra: The event's extra.
    """
    events = context["outlet_events"][EVENT_ALIAS]
    if isinstance(asset, Asset):
        events.add(asset, extra=dict(extra))
        return
    try:
        events.add(Asset.ref(uri=asset), extra=dict(extra))
    except AirflowRuntimeError:  # no DAG references the asset
        events.add(Asset(asset), extra=dict(extra))

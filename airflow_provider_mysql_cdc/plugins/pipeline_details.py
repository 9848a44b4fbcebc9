"""Readings that a person asks for: the chunks of a running snapshot, and a check of everything that a stream needs."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.plugins.pipeline_config import read_config
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading, error_json, peek_ledger, scrubbed
from airflow_provider_mysql_cdc.plugins.serialized_tasks import PipelineTask


def read_snapshot_map(task: PipelineTask) -> PipelineReading:
    """Read which chunks of the snapshot that is being taken are done.

    Args:
        task: The task whose arguments describe the pipeline.
    """
    from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_map import seconds_left, snapshot_tables

    try:
        cfg = read_config(task)
        ledger = peek_ledger(cfg, chunks=True)
    except CdcError as error:
        return PipelineReading({"unread": {"kafka": error_json(error)}})
    tables = snapshot_tables(ledger)
    began_ms = ledger.plan.created_ms if ledger.plan is not None else 0
    left = seconds_left(tables, (now_ms() - began_ms) / 1000) if began_ms else None
    return PipelineReading(
        scrubbed({"unread": {}, "seconds_left": left, "tables": [table.to_json() for table in tables]}, cfg)
    )


def read_preflight(task: PipelineTask) -> PipelineReading:
    """Check the source, Kafka and the schema registry, as the test button of the connection does.

    Args:
        task: The task whose arguments describe the pipeline.
    """
    from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup

    try:
        cfg = read_config(task)
        reports = check_setup(cfg)
    except CdcError as error:
        return PipelineReading({"unread": {"configuration": error_json(error)}})
    findings = [
        {"system": report.system, "level": found.level, "what": found.what, "why": found.why, "fix": found.fix}
        for report in reports
        for found in report.findings
    ]
    reached = {report.system: report.reached for report in reports}
    return PipelineReading(scrubbed({"unread": {}, "reached": reached, "findings": findings}, cfg))

"""Readings that a person asks for: chunks of a running snapshot, the last verification, and a check of all servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.plugins.pipeline_status import (
    PipelineReading,
    error_json,
    peek_ledger,
    read_config,
    scrubbed,
)
from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import TableVerdict

MAX_VERDICTS = 100
"""Tables of a verification, those with differences first."""
MAX_EXAMPLES = 10
"""Examples of a table."""
EXAMPLE_WIDTH = 400
"""Characters of a line of an example."""


def read_snapshot_map(task: PipelineTask) -> PipelineReading:
    """Read which chunks of the snapshot that is being taken are done.

    Args:
        task: The task whose arguments describe the pipeline.
    """
    from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_progress import seconds_left, snapshot_tables

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


def read_verification(task: PipelineTask) -> PipelineReading:
    """Read the last verdict about each table, without the values that must not be shown.

    Args:
        task: The task whose arguments describe the pipeline.
    """
    from airflow_provider_mysql_cdc.cdc.verify.report.report_text import next_step, verdict_sentence
    from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import hide_values, read_last_verdicts
    from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import bounded_json, count_verdicts, position_text

    try:
        cfg = read_config(task)
        result = read_last_verdicts(peek_ledger(cfg))
        if result is None:
            return PipelineReading({"unread": {}})
        result = hide_values(cfg, result)
    except CdcError as error:
        return PipelineReading({"unread": {"kafka": error_json(error)}})
    report = bounded_json(result, MAX_VERDICTS, _table_verdict) | {
        "unread": {},
        "sentence": verdict_sentence(result, count_verdicts(result)),
        "position": position_text(result),
        "remedy": next_step(result),
        "earlier": dict(result.earlier),
    }
    return PipelineReading(scrubbed(report, cfg))


def _table_verdict(verdict: TableVerdict) -> dict[str, Any]:
    from airflow_provider_mysql_cdc.cdc.verify.report.report_text import example_lines

    examples = [line for each in verdict.examples[:MAX_EXAMPLES] for line in example_lines(each, EXAMPLE_WIDTH)]
    more = {"topic": verdict.topic, "columns": dict(verdict.columns), "by_checksums": verdict.by_checksums}
    return verdict.counts_json() | more | {"unknown": list(verdict.unknown), "examples": examples}


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

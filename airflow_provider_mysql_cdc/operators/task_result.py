"""The result of a task: its summary, its metrics, the report's file, and the asset events that belong to it.

What a task did, in a sentence or two: the XCom ``summary``.

A task of Airflow 3.3 cannot write a note of its run or of itself: the API of tasks (``execution_api``) has no way to do
so, and the REST API takes notes only from users with a token.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, SinkConnectionError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import Gauge, airflow_metrics_on, emit_gauges
from airflow_provider_mysql_cdc.operators.asset_events import StreamAssets, add_run_events
from airflow_provider_mysql_cdc.operators.common import owner_of, run_key

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus
    from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyResult


SUMMARY_KEY = "summary"
"""Key of the XCom."""
NAMED_TABLES = 5
"""Tables that are named, those with the most records first."""


def summary_text(result: Mapping[str, Any]) -> str:
    """Return what a task did.

    Args:
        result: The task's result.
    """
    parts = (_work(result), _verification(result.get("verification") or {}), _place(result.get("offset") or {}))
    return " ".join(part for part in parts if part)


def _work(result: Mapping[str, Any]) -> str:
    total = sum((result.get("counts") or {}).values())
    reason = str(result.get("reason") or "")
    if not total:
        return f"Nothing was written: {reason.rstrip('.')}." if reason else "Nothing was written."
    batches = int(result.get("batches") or 0)
    within = f" in {_number(batches, 'batch', 'batches')}" if batches else ""
    return f"{_number(total, 'record', 'records')}{within}{_tables(result.get('tables') or {})}."


def _tables(tables: Mapping[str, int]) -> str:
    ordered = sorted(tables.items(), key=lambda table: (-table[1], table[0]))
    named = [f"{unquote(name)} {rows:,}" for name, rows in ordered[:NAMED_TABLES]]
    more = len(ordered) - len(named)
    rest = [f"and {_number(more, 'more table', 'more tables')}"] if more else []
    return f": {', '.join([*named, *rest])}" if named else ""


def _verification(verification: Mapping[str, Any]) -> str:
    if not verification:
        return ""
    compared, different = verification.get("tables_compared", 0), verification.get("tables_different", 0)
    unread, unjudged = (verification.get(f"tables_not_{what}", 0) for what in ("compared", "judged"))
    of = _number(compared, "table was", "tables were")
    differ = f"{different:,} of them {'differs' if different == 1 else 'differ'}" if different else "none differs"
    left_out = f" {_number(unread, 'table was', 'tables were')} not." if unread else ""
    in_part = f" {unjudged - unread:,} could not be judged in full." if unjudged > unread else ""
    return f"{of} compared; {differ}.{left_out}{in_part}"


def _place(offset: Mapping[str, Any]) -> str:
    return f"The stream is at {offset['file']}:{offset['pos']}." if offset.get("file") else ""


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


MAX_THREADS = 16
"""Streams whose metrics are published at the same time."""
KAFKA_TIMEOUT_S = 3.0
"""Seconds for Kafka's first answer after a try that could not reach it; the ledger's reader waits for 17 s."""


@dataclass(frozen=True, slots=True)
class PublishedStream:
    """Name a stream whose metrics are published.

    Args:
        read_config: Returns the connector's configuration.
        file: File to write; None for none.
        lost_kafka: Whether the try could not reach its Kafka.
    """

    read_config: Callable[[], ConnectorConfig]
    file: str | None
    lost_kafka: bool = False


def numbers_of(families: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the metrics that are numbers, and truth values as 0 and 1.

    Args:
        families: Attributes by Debezium's name, by family.
    """
    return {
        family: {name: int(value) for name, value in attributes.items() if isinstance(value, (int, float))}
        for family, attributes in families.items()
    }


def result_metrics(metrics: StreamMetrics) -> dict[str, Any]:
    """Return what a task's result says of metrics: the numbers; nothing where there are none.

    Args:
        metrics: The stream's metrics at the end of the job.
    """
    families = numbers_of(metrics.stopped().families(metrics.at_ms)) if metrics.at_ms else {}
    return {"metrics": families} if families else {}


@contextmanager
def publishing_metrics(
    read_config: Callable[[], ConnectorConfig], metrics_file: str | None, log: Callable[..., None]
) -> Iterator[None]:
    """Publish the stream's metrics at the end of a try, as ``publishing_each``.

    Args:
        read_config: Returns the connector's configuration.
        metrics_file: File to write; None for none.
        log: Takes a line with its arguments.
    """
    stream = PublishedStream(read_config, metrics_file)
    with publishing_each(lambda: [stream], log):
        try:
            yield
        except Exception as error:
            stream = replace(stream, lost_kafka=isinstance(getattr(error, "error", error), SinkConnectionError))
            raise


@contextmanager
def publishing_each(streams: Callable[[], Sequence[PublishedStream]], log: Callable[..., None]) -> Iterator[None]:
    """Publish the metrics of streams at the end of a try, whatever it ends with, except where it only defers.

    Args:
        streams: Returns the streams; called at the end.
        log: Takes a line with its arguments.
    """
    ended = True
    try:
        yield
    except (TaskDeferred, AirflowTaskTimeout):
        ended = False
        raise
    finally:
        if ended:
            _publish_each([stream for stream in streams() if stream.file or airflow_metrics_on()], log)


def _publish_each(streams: Sequence[PublishedStream], log: Callable[..., None]) -> None:
    if len(streams) == 1:
        _publish(streams[0], log)
    elif streams:
        with ThreadPoolExecutor(min(MAX_THREADS, len(streams))) as pool:
            list(pool.map(lambda stream: _publish(stream, log), streams))


def _publish(stream: PublishedStream, log: Callable[..., None]) -> None:
    """Publish metrics; an error is logged, because it must not hide how the task has ended."""
    from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import write_metrics_file
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status
    from airflow_provider_mysql_cdc.cdc.sink.topics import accepts_clients

    try:
        cfg = stream.read_config()
        if stream.lost_kafka and not accepts_clients(cfg.kafka_settings(), KAFKA_TIMEOUT_S):
            log("The metrics could not be published: Kafka cannot be reached.")
            return
        status = read_status(cfg)
        if stream.file:
            write_metrics_file(stream.file, status.prometheus())
    except CdcError as error:
        log("The metrics could not be published: %s", error.message())
        return
    if airflow_metrics_on():
        emit_gauges(status.stream, status_gauges(status))


def status_gauges(status: StreamStatus) -> Iterator[Gauge]:
    """Yield what Airflow's metrics get of a status.

    Args:
        status: The status.
    """
    for family, attributes in numbers_of(status.families()).items():
        for name, value in attributes.items():
            yield f"{family}.{name}", value
    lag = {"lag.milliseconds": status.lag.milliseconds, "lag.bytes": status.lag.bytes}
    yield from ((name, value) for name, value in lag.items() if value is not None)


class TaskResult:
    """Build the result of one try of a task, and report each batch of the ledger once in asset events.

    Args:
        context: Airflow's context.
        assets: The task's assets.
        log: Takes a line with its arguments.
    """

    def __init__(self, context: Any, assets: StreamAssets, log: Callable[..., None]) -> None:
        self._context, self._assets, self._log = context, assets, log
        self._reported: tuple[ConnectorConfig, RunTally] | None = None

    def result(
        self,
        cfg: ConnectorConfig,
        offset: Mapping[str, Any] | None,
        counts: Mapping[str, int],
        tally: RunTally | None,
    ) -> dict[str, Any]:
        """Return the task's result, and add the asset events that belong to it.

        Args:
            cfg: The connector's configuration.
            offset: The stored offset as JSON.
            counts: Records by topic.
            tally: What the run has written; None when there is nothing to report.
        """
        result: dict[str, Any] = {"complete": True, "offset": offset, "counts": counts}
        if tally is None:
            return result
        add_run_events(self._context, cfg, self._assets, offset, tally)
        self._reported = (cfg, tally)
        result |= {"batches": tally.batches, "tables": dict(tally.tables), **tally.native.members()}
        return result | result_metrics(tally.metrics)

    def idle_result(self, cfg: ConnectorConfig, store: OffsetStore) -> dict[str, Any]:
        """Return the result of a try that has started no job; it reports what earlier tries and ended runs wrote.

        Args:
            cfg: The connector's configuration.
            store: Airflow's offset store.
        """
        from airflow_provider_mysql_cdc.cdc.operate.stored_offset import tally_of, tally_of_ended_run

        context = self._context
        state = store.load()
        offset = state.committed.to_json() if state and state.committed else None
        tally = tally_of(cfg, run_key(context)) if getattr(context["ti"], "try_number", 1) > 1 else None
        if tally is None and offset is not None:
            tally = tally_of_ended_run(cfg, owner_of(context))
        return self.result(cfg, offset, {} if tally is None else dict(tally.counts), tally)

    def publish_summary(self, result: Mapping[str, Any]) -> None:
        """Push the XCom that says in a sentence what the task did.

        Args:
            result: The task's result.
        """
        with suppress(Exception):  # the result says the same; no task fails for its summary
            self._context["ti"].xcom_push(key=SUMMARY_KEY, value=summary_text(result))

    def mark_reported(self) -> None:
        """Record in the ledger that this task, which now succeeds, has reported its batches."""
        from airflow_provider_mysql_cdc.cdc.operate.stored_offset import mark_reported

        if self._reported is not None and self._reported[1].batches:
            mark_reported(*self._reported, run_key(self._context), self._log)


_FILE_MODE = 0o640


def require_report_folder(folder: str) -> None:
    """Create the folder if it is missing, and check that files can be written into it.

    Raises:
        ConfigError: They cannot.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _folder_error(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _folder_error(folder, "this account may not write into it")


def write_report_file(folder: str, result: VerifyResult) -> str:
    """Write the report as JSON, and return the path.

    Args:
        folder: The folder.
        result: The result, without values that must not be shown.

    Raises:
        ConfigError: It cannot be written.
    """
    from airflow_provider_mysql_cdc.cdc.replaced_file import replace_file

    prefix = re.sub(r"[^\w-]", "_", result.prefix)
    started = datetime.fromtimestamp(result.started_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    path = Path(folder) / f"verify-{prefix}-{started}.json"
    require_report_folder(folder)
    try:
        replace_file(path, json.dumps(result.to_json(), indent=1, ensure_ascii=False, default=str) + "\n", _FILE_MODE)
    except OSError as error:
        raise _folder_error(folder, error.strerror or str(error)) from error
    return str(path)


def _folder_error(folder: str, why: str) -> ConfigError:
    return ConfigError(
        "the report of the verification cannot be written",
        where=f"report_dir={folder}",
        why=why,
        remedy="name a folder that the account of the Airflow worker may write into; the report is in this log too",
    )

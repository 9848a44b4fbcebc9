"""What a pipeline's page shows of Kafka, the source and the offset store, read with its tasks' configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.assets.mysql_cdc import pipeline_uri
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkConnectionError
from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import Sample
    from airflow_provider_mysql_cdc.cdc.operate.lag import LagPoint
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore


TIMEOUTS = {
    "connect.timeout.ms": 3_000,
    "source.silence.timeout.ms": 10_000,
    "database.query.timeout.ms": 10_000,
}
"""A person waits for the page; a server that takes longer is one that does not answer."""
RUNS_CODE = frozenset(
    {"plugin.library.paths", "ssl.engine.location", "ssl.provider.location", "ssl.providers", "sasl.kerberos.kinit.cmd"}
)
"""Kafka settings with which the client loads a library or runs a command; authors of DAGs have no code in the API
server."""


def read_config(task: PipelineTask) -> ConnectorConfig:
    """Return the configuration of the pipeline that a task works for, with short timeouts.

    Args:
        task: The task.

    Raises:
        ConfigError: A connection does not exist, a property is wrong or missing, or the Kafka client would run code.
    """
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
    from airflow_provider_mysql_cdc.hooks.schema_registry import REGISTRY_CONN_ID

    properties: dict[str, Any] = {**_variable_properties(task), **task.properties, **TIMEOUTS}
    if task.registry_conn_id:
        properties[REGISTRY_CONN_ID] = task.registry_conn_id
    cfg = MySqlCdcHook(task.conn_id, task.kafka_conn_id or None).get_config(properties)
    _refuse_code(cfg)
    return cfg


def _refuse_code(cfg: ConnectorConfig) -> None:
    from airflow_provider_mysql_cdc.cdc.errors import ConfigError

    names = {name for settings in cfg.families.kafka_settings.values() for name in settings}
    if found := RUNS_CODE & names:
        raise ConfigError(
            "the page does not read this pipeline",
            where=", ".join(sorted(found)),
            why="with these settings the Kafka client loads a library or runs a command, which the page must not do in "
            "Airflow's API server; tasks of the pipeline are not affected",
            remedy="see its status with mysql-cdc status on a worker, or do without these settings",
        )


def _variable_properties(task: PipelineTask) -> dict[str, Any]:
    """Return the properties in the Airflow Variable of the DAGs that come with this package."""
    if not task.variables:
        return {}
    from airflow.models.variable import Variable

    from airflow_provider_mysql_cdc.operators.dag_params import PROPERTIES_VARIABLE

    stored = Variable.get(PROPERTIES_VARIABLE, default_var={}, deserialize_json=True)
    return dict(stored) if isinstance(stored, dict) else {}


@dataclass(frozen=True, slots=True)
class StoreContent:
    """Hold what an offset store has of a stream.

    Args:
        state: Its state; None where nothing is stored.
        points: How far it was behind in the last day, oldest first.
    """

    state: StoredState | None = None
    points: Sequence[LagPoint] = ()


def read_store(task: PipelineTask, prefix: str) -> StoreContent:
    """Return what the offset store has of a stream; nothing where the task names no store.

    Args:
        task: The task.
        prefix: topic.prefix.

    Raises:
        CdcError: The store does not answer, or its value is damaged.
    """
    if task.offset_conn_id:
        return _from_database(task.offset_conn_id, prefix)
    if not task.offset_asset:
        return StoreContent()
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore, MetadataAccessor

    return _content(AssetOffsetStore(MetadataAccessor(task.offset_asset), prefix))


def _content(store: AssetOffsetStore | SqlOffsetStore) -> StoreContent:
    from airflow_provider_mysql_cdc.cdc.operate.lag import read_points

    return StoreContent(store.load(), read_points(store))


def _from_database(conn_id: str, prefix: str) -> StoreContent:
    """Return the content of an offset database; tables that are missing are not created by a look at them."""
    import sqlalchemy

    from airflow_provider_mysql_cdc.cdc.commit.sql_store import TABLES, SqlOffsetStore
    from airflow_provider_mysql_cdc.connections import find_connection
    from airflow_provider_mysql_cdc.state.offset_database import open_engine

    engine = open_engine(find_connection(conn_id, "offset database"))
    try:
        if not set(TABLES) <= set(sqlalchemy.inspect(engine).get_table_names()):
            return StoreContent()
        return _content(SqlOffsetStore(engine, prefix))
    finally:
        engine.dispose()


KAFKA_TIMEOUT_S = 3.0
"""Seconds within which Kafka must answer before anything is read from it."""
HIDDEN_METRICS = frozenset({"ChunkFrom", "ChunkTo", "TableFrom", "TableTo", "LastAppliedChange", "LastRecoveredChange"})
"""Metrics with keys of rows or texts of statements: who may read a DAG need not be allowed to see them."""

PageJson = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PipelineReading:
    """Hold what was read of a pipeline.

    Args:
        report: It as plain JSON, with the error of each part that could not be read.
        samples: Its metrics for Prometheus; none where Kafka could not be read.
    """

    report: PageJson
    samples: tuple[Sample, ...] = ()


def read_pipeline(task: PipelineTask) -> PipelineReading:
    """Read the status of a pipeline.

    Args:
        task: The task whose arguments describe it.
    """
    try:
        cfg = read_config(task)
    except CdcError as error:
        return PipelineReading({"unread": {"configuration": error_json(error)}, "state": "unknown"})
    first = cfg.servers()[0]
    report: PageJson = {
        "stream": cfg.topic_prefix,
        "source": cfg.source_address(),
        "asset_uri": pipeline_uri(first.host, cfg.topic_prefix, first.port),
        "unread": {},
    }
    store: StoreContent | None = _part(report, "offset store", lambda: read_store(task, cfg.topic_prefix))
    stored = store.state if store is not None else None
    report["points"] = [point.to_json() for point in store.points] if store is not None else []
    ledger = _part(report, "kafka", lambda: peek_ledger(cfg))
    if stored is not None:
        report["stored"] = _stored(stored)
    samples: tuple[Sample, ...] = ()
    if ledger is not None:
        samples = _add_ledger(report, cfg, ledger)
    else:
        report |= {"state": "unknown"}
        if stored is not None:
            _add_stored_lag(report, cfg, stored)
    return PipelineReading(scrubbed(report, cfg), samples)


def peek_ledger(cfg: ConnectorConfig, *, chunks: bool = False) -> LedgerState:
    """Return the committed content of a stream's ledger, if Kafka answers soon.

    Args:
        cfg: The stream's configuration.
        chunks: Whether to read the chunks of a snapshot as well, where one is being taken.

    Raises:
        CdcError: Kafka cannot be reached, or the ledger cannot be read.
    """
    from airflow_provider_mysql_cdc.cdc.commit import kafka_clients

    require_kafka(cfg)
    with kafka_clients.ledger(cfg) as ledger:
        state = ledger.peek()
        plan = state.plan
        is_snapshot = plan is not None and plan.kind == "snapshot" and not state.complete()
        return ledger.peek(chunks=True) if chunks and is_snapshot else state


def require_kafka(cfg: ConnectorConfig) -> None:
    """Check that Kafka answers soon, before anything is read from it.

    Args:
        cfg: The stream's configuration.

    Raises:
        SinkConnectionError: It does not.
    """
    from airflow_provider_mysql_cdc.cdc.sink.topics import accepts_clients

    settings = cfg.kafka_settings()
    if not accepts_clients(settings, KAFKA_TIMEOUT_S):
        raise SinkConnectionError(
            "Kafka does not answer",
            where=str(settings.get("bootstrap.servers", "")),
            why=f"no broker has answered within {KAFKA_TIMEOUT_S:.0f} s",
            remedy="check whether the brokers run, and can be reached from the host of Airflow's API server",
        )


def _part(report: PageJson, name: str, read: Callable[[], Any]) -> Any:
    """Return what a function reads; None with the error in the report where it cannot."""
    try:
        return read()
    except CdcError as error:
        report["unread"][name] = error_json(error)
        return None


def error_json(error: CdcError) -> PageJson:
    """Return an error with its remedy as plain JSON.

    Args:
        error: The error.
    """
    return error.to_json() | {"remedy": error.next_step()}


def _add_ledger(report: PageJson, cfg: ConnectorConfig, ledger: LedgerState) -> tuple[Sample, ...]:
    from airflow_provider_mysql_cdc.cdc.operate.stream_report import stream_report, stream_state
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import measured_status

    status = measured_status(cfg, ledger)
    if status.active is None:
        report["unread"]["mysql"] = {"what": status.lag.why, "remedy": ""}
    report |= {
        "state": stream_state(status),
        "status": _status(status),
        "report": _part(report, "ledger", lambda: stream_report(ledger)),
    }
    if status.active is not None and report["report"] is not None and report["report"]["scans_active"]:
        _add_scan_progress(report, cfg, ledger, status.at_ms)
    return tuple(status.samples())


def _add_scan_progress(report: PageJson, cfg: ConnectorConfig, ledger: LedgerState, now_ms: int) -> None:
    """Add how far the scans are that have not ended; without an answer of the source, their rows say it."""
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_progress import read_scan_progress

    progress = _part(report, "mysql", lambda: read_scan_progress(cfg, ledger, now_ms))
    if progress is not None:
        by_number = progress["by_number"]
        scans = [scan | by_number.get(scan["number"], {}) for scan in report["report"]["scans"]]
        report["report"] |= {"scans": scans, "scans_seconds_left": progress["seconds_left"]}


def _status(status: StreamStatus) -> PageJson:
    shown = status.to_json()
    families: Mapping[str, Mapping[str, Any]] = shown["metrics"]
    metrics = {
        family: {name: value for name, value in attributes.items() if name not in HIDDEN_METRICS}
        for family, attributes in families.items()
    }
    return shown | {"metrics": metrics}


def _stored(state: StoredState) -> PageJson:
    """Return what is shown of the offset store."""
    committed = state.committed
    return {
        "epoch": state.epoch,
        "offset": None if committed is None else {"file": committed.file, "pos": committed.pos},
        "pending": None if state.pending is None else {"epoch": state.pending.epoch, "kind": state.pending.kind},
        "history": [{"at_ms": past.at_ms, "offset": f"{past.offset.file}:{past.offset.pos}"} for past in state.history],
    }


def _add_stored_lag(report: PageJson, cfg: ConnectorConfig, state: StoredState) -> None:
    """Add how far the stored offset is behind, where the ledger cannot be read."""
    from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state

    def read() -> PageJson:
        drained = DrainedOffset.from_state(state)
        return measure_lag(drained, read_binlog_state(cfg, drained), Thresholds()).to_json()

    report["stored_lag"] = _part(report, "mysql", read)


def scrubbed(value: Any, cfg: ConnectorConfig) -> Any:
    """Return plain JSON whose texts have none of the secrets of a configuration.

    Args:
        value: The JSON.
        cfg: The configuration.
    """
    from airflow_provider_mysql_cdc.cdc.config.property_names import scrub

    if isinstance(value, str):
        return scrub(value, cfg.properties())
    if isinstance(value, Mapping):
        return {name: scrubbed(member, cfg) for name, member in value.items()}
    return [scrubbed(member, cfg) for member in value] if isinstance(value, (list, tuple)) else value

"""Plan the job of a verification from an operator's arguments: a drain, after which tables and topics are compared.

Plan the job of a verification: a drain, after which tables and topics are compared.

Everything that can be refused is refused here, before a plan is stored and before Spark starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, NoOffsetError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason, other_active_run, prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
from airflow_provider_mysql_cdc.cdc.operate.send_signal import parse_tables
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topics import describe_topics
from airflow_provider_mysql_cdc.cdc.verify.group_queue import check_entries, choose_tables
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import MAX_EXAMPLES, RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import check_replica

_MAX_LISTED = 10


def prepare_verify(
    cfg: ConnectorConfig,
    store: OffsetStore,
    owner: str,
    log: Log,
    request: VerifyRequest,
    *,
    on_idle: Callable[[IdleReason], None] = lambda reason: None,
) -> PreparedJob | None:
    """Plan a verification; it drains first, also when nothing is new, or finishes an interrupted batch.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        request: What to verify.
        on_idle: Takes the reason when there is no job.

    Returns:
        The job, or None while another run of the stream is running.

    Raises:
        ConfigError: A table is not captured, or the stream is never drained.
        NoOffsetError: No snapshot was taken and nothing was drained.
        TopicChangedError: A topic was deleted, created again or given more partitions.
    """
    _require_events(cfg)
    cfg = at_one_server(cfg, store, log)
    if (active_run := other_active_run(cfg, owner)) is not None:
        reason = IdleReason(f"this verification gives way: {active_run}; nothing was compared", gave_way=True)
        log(reason.text)
        on_idle(reason)
        return None
    if str(cfg[F.SNAPSHOT_MODE]) == "initial_only":
        raise ConfigError(
            "a stream that is never drained cannot be verified",
            where=f"topic.prefix={cfg.topic_prefix}, snapshot.mode=initial_only",
            why="tables are compared at the end of the binlog, up to which the topics must hold all changes",
            remedy="use another snapshot.mode, for example initial",
        )
    ledger = kafka_clients.ledger(cfg).peek()
    _require_stream(cfg, store, ledger)
    with connect(cfg.connection_settings()) as conn:
        tables = choose_tables(request.tables, captured_tables(conn, cfg))
        check_replica(cfg, conn, tables)
    _require_topics(cfg, tables, ledger)
    log(_describe(cfg, tables, request))
    job = prepare_drain(cfg, store, owner, log, even_empty=True, give_way=True, on_idle=on_idle)
    return job and replace(job, spec=replace(job.spec, mode="verify", options=request.to_json()))


def _require_events(cfg: ConnectorConfig) -> None:
    """Refuse topics whose records a chain of transforms has made: no key and no row of them is a table's for sure."""
    if cfg.chain is not None:
        raise ConfigError(
            f"what {F.TRANSFORMS.name} has changed cannot be verified or repaired",
            where=f"topic.prefix={cfg.topic_prefix}, {F.TRANSFORMS.name}={cfg.texts[F.TRANSFORMS.name]}",
            why="a verification compares change events with rows, and behind transforms the topics hold other records",
            remedy="compare in the system that reads the topics; or run a second stream of the tables with another "
            "topic.prefix and without these transforms, and verify that",
        )


def _require_stream(cfg: ConnectorConfig, store: OffsetStore, ledger: LedgerState) -> None:
    state = store.load()
    if ledger.plan is None and (state is None or (state.committed is None and state.pending is None)):
        raise NoOffsetError(
            "there is no stream to verify",
            where=f"topic.prefix={cfg.topic_prefix}",
            why="neither the offset store nor the ledger has an offset for this topic.prefix, so no snapshot was taken",
            remedy="run the snapshot first (DAG mysql_cdc_snapshot), or correct topic.prefix",
        )


def _require_topics(cfg: ConnectorConfig, tables: Sequence[TableId], ledger: LedgerState) -> None:
    """Require that the topics are those that the stream has written; a topic not yet written is created by the drain.

    The drain would refuse or create a topic that was deleted; a verification after that would find every row missing.
    """
    topics = {topic for table in tables if (topic := table_topic_name(cfg, table)) in ledger.topics}
    settings = cfg.kafka_settings()
    current = describe_topics(make_admin(settings), topics, broker_addresses(settings)) if topics else {}
    changed = {topic: text for topic in sorted(topics) if (text := ledger.topics[topic].difference(current.get(topic)))}
    if changed:
        listed = [f"{topic}: {text}" for topic, text in list(changed.items())[:_MAX_LISTED]]
        more = [f"and {len(changed) - _MAX_LISTED} more"] if len(changed) > _MAX_LISTED else []
        raise TopicChangedError(
            "a topic to verify is not the one that the stream has written",
            where="; ".join([*listed, *more]),
            why="the records of a deleted topic are lost, so every row would be missing",
            remedy="find out who changed it. To continue with the topics as they are now, run DAG "
            "mysql_cdc_reset_offset with offset=stored; then fill them again: verify with repair=yes, or trigger "
            "mysql_cdc_snapshot with again=true",
        )


def _describe(cfg: ConnectorConfig, tables: Sequence[TableId], request: VerifyRequest) -> str:
    share = "all keys" if request.sample_percent >= 100 else f"{request.sample_percent:g} % of the keys"
    rate = cfg[F.VERIFY_ROWS_PER_SECOND]
    limit = f" at {rate:,} rows per second" if rate else ""
    repair = {
        RepairMode.NO: "nothing is repaired",
        RepairMode.DRY_RUN: "repairs are only counted",
        RepairMode.YES: f"up to {cfg[F.REPAIR_MAX_ROWS]:,} rows are repaired",
    }
    replica = cfg.replica_settings()
    where = "" if replica is None else f"; rows are read from the replica {replica.address()}"
    return f"verifying {len(tables):,} table(s): {share}{limit}; {repair[request.repair]}{where}"


_REPAIR_MODES = {
    **{str(mode): mode for mode in RepairMode},
    **dict.fromkeys(("", "none", "false"), RepairMode.NO),
    "true": RepairMode.YES,
}


def parse_request(
    *,
    tables: Sequence[str] | str | None = (),
    sample_percent: Any = 100,
    repair: Any = RepairMode.NO,
    examples: Any = 10,
    show_values: bool = True,
    history: bool = False,
    checksums: bool = True,
) -> VerifyRequest:
    """Return a request from the arguments of an operator.

    Args:
        tables: Names ``database.table``, or regular expressions for them; one, a list, or a list's JSON text.
        sample_percent: Share of the keys that is compared; a number or its text.
        repair: ``no``, ``dry-run`` or ``yes``.
        examples: Examples of each kind of difference, per table; a number or its text.
        show_values: Whether the report holds values of rows.
        history: Whether the events of each key are also checked one after the other.
        checksums: Whether the server adds up checksums of rows where it can; otherwise tasks encode all rows.

    Raises:
        ConfigError: A value is not possible.
    """
    entries = parse_tables(tables)
    check_entries(entries)
    mode = _REPAIR_MODES.get(str(repair).strip().lower())
    if mode is None:
        raise ConfigError(
            f"{repair!r} is not a way to repair", where="repair", remedy="use no, dry-run or yes; nothing was compared"
        )
    sample = _number(sample_percent)
    if not 0 < sample <= 100:
        raise ConfigError(
            "the sample is out of range",
            where=f"sample_percent={sample_percent!r}",
            why="it is the share of the keys that is compared, in percent",
            remedy="use a number above 0 and at most 100; 100 compares all keys",
        )
    count = _number(examples)
    if not (0 <= count <= MAX_EXAMPLES and count == int(count)):
        raise ConfigError(
            "the number of examples is out of range",
            where=f"examples={examples!r}",
            remedy=f"use a whole number from 0 to {MAX_EXAMPLES}",
        )
    return VerifyRequest(tuple(entries), sample, mode, int(count), show_values, history, checksums)


def _number(value: Any) -> float:
    """Return a number; nan for what is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan

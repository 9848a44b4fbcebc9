"""Check everything outside that a stream needs: the source, Kafka and the schema registries.

Check everything outside that a stream needs: the source, Kafka and the schema registries.

``mysql-cdc preflight`` and the test button of a connection print the same report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.registry_fields import PARTS
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding, error_finding
from airflow_provider_mysql_cdc.cdc.operate.findings import kafka_findings, source_findings
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import signal_topic_findings
from airflow_provider_mysql_cdc.cdc.signals.signal_table import signal_table_findings
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import cluster_metadata


def check_registries(cfg: ConnectorConfig) -> list[tuple[str, list[Finding]]]:
    """Request the subjects of each registry; return a sentence about each that answers, and what was found.

    Args:
        cfg: The configuration.
    """
    settings = dict.fromkeys(s for part in PARTS if (s := cfg.registry_settings(part)) is not None)
    results: list[tuple[str, list[Finding]]] = []
    for registry_settings in settings:
        try:
            registry = SchemaRegistry(registry_settings)
            try:
                count = registry.subject_count()
            finally:
                registry.close()
            results.append((f"reachable at {registry_settings.url}, {count} subject(s).", []))
        except CdcError as error:
            results.append(("", [error_finding(error)]))
    return results


KAFKA_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SystemReport:
    """Report on one system.

    Args:
        system: ``MySQL``, ``Kafka``, ``Kafka signals`` or ``Schema registry``.
        reached: What was reached, one sentence; empty if nothing was.
        findings: What was found.
    """

    system: str
    reached: str
    findings: Sequence[Finding] = ()

    @property
    def ok(self) -> bool:
        """Whether no error was found."""
        return all(finding.error is None for finding in self.findings)

    def lines(self) -> Iterator[str]:
        """Yield the lines for a person."""
        if self.reached:
            yield f"{self.system}: {self.reached}"
        for finding in self.findings:
            text = f"error: {finding.error}" if finding.error is not None else f"{finding}."
            yield f"{self.system}: {text}"


def check_setup(cfg: ConnectorConfig, state: StoredState | None = None) -> list[SystemReport]:
    """Check all systems; one that cannot be reached is reported as such.

    Args:
        cfg: The connector's configuration.
        state: The stored state of the stream, if it is known.
    """
    tables: list[str] = []
    sources = _check_servers(cfg, state, tables)
    registries = (SystemReport("Schema registry", line, found) for line, found in check_registries(cfg))
    return [*sources, _check_kafka(cfg, tables), *_check_signal_topic(cfg), *registries]


def _check_servers(cfg: ConnectorConfig, state: StoredState | None, tables: list[str]) -> list[SystemReport]:
    """Check each server in ``database.hostname``; one of several that does not answer is a warning."""
    servers = cfg.servers()
    if len(servers) == 1:
        return [_check_mysql(cfg, state, tables)]
    reports = []
    for server in servers:
        report = _check_mysql(cfg.at_server(server.host, server.port), state, tables)
        reports.append(replace(report, system=f"MySQL {server.address()}"))
    return [_as_warning(report) for report in reports] if any(report.reached for report in reports) else reports


def _as_warning(report: SystemReport) -> SystemReport:
    if report.reached or not all(isinstance(finding.error, SourceConnectionError) for finding in report.findings):
        return report
    warnings = [replace(finding, level=WARNING, error=None) for finding in report.findings]
    return replace(report, findings=warnings)


def _check_mysql(cfg: ConnectorConfig, state: StoredState | None, tables: list[str]) -> SystemReport:
    settings = cfg.connection_settings()
    reached = ""
    try:
        with connect(settings) as conn:
            reached = f"reachable at {settings.address()}."
            behind = state if state is not None and _is_behind(cfg, state) else None
            findings = source_findings(conn, cfg, snapshot=True, state=behind)
            findings += signal_table_findings(conn, cfg)
            captured = captured_tables(conn, cfg)
            tables += [table_topic_name(cfg, table) for table in captured]
            reached += f" {len(captured)} {'table is' if len(captured) == 1 else 'tables are'} captured."
    except CdcError as error:
        return SystemReport("MySQL", reached, [error_finding(error)])
    return SystemReport("MySQL", reached, findings)


def _is_behind(cfg: ConnectorConfig, state: StoredState) -> bool:
    drained = DrainedOffset.from_state(state)
    return measure_lag(drained, read_binlog_state(cfg, drained), Thresholds()).reached


def _check_signal_topic(cfg: ConnectorConfig) -> Iterator[SystemReport]:
    if cfg.accepts_signals_from("kafka"):
        found = signal_topic_findings(cfg)
        yield SystemReport("Kafka signals", "" if found else f"topic {cfg[F.SIGNAL_KAFKA_TOPIC]} can be read.", found)


def _check_kafka(cfg: ConnectorConfig, tables: list[str]) -> SystemReport:
    reached = ""
    try:
        metadata = cluster_metadata(make_admin(cfg.kafka_settings("admin")), KAFKA_TIMEOUT_S)
        reached = f"reachable, {len(metadata.brokers)} broker(s), {len(metadata.topics)} topic(s)."
        return SystemReport("Kafka", reached, kafka_findings(cfg, metadata, tables))
    except CdcError as error:
        return SystemReport("Kafka", reached, [error_finding(error)])

"""The ledger records of a verification: one about the whole, and one for each table."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_KEY, VERIFY_TABLE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import decode, encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import record_location
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain
from airflow_provider_mysql_cdc.cdc.verify.group_records import done_keys
from airflow_provider_mysql_cdc.cdc.verify.hidden_values import hide_values
from airflow_provider_mysql_cdc.cdc.verify.verify_result import VerifyResult


def write_verdicts(cfg: ConnectorConfig, ledger: LedgerState, result: VerifyResult, *, over: bool = True) -> None:
    """Write the records of a result.

    They are written like signals, without the driver's transactional id: another run may be draining. The ledger holds
    no value that a report must not show.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger before.
        result: The result.
        over: Whether the verification is over, so that no retry needs to know which groups were compared.

    Raises:
        SinkError: Kafka refuses, or does not answer.
    """
    records = [
        SideRecord(cfg.ledger_topic, key.encode(), None if value is None else encode(value))
        for key, value in verdict_values(ledger, hide_values(cfg, result), over=over)
    ]
    write_plain(cfg.kafka_settings(), records)


def verdict_values(
    ledger: LedgerState, result: VerifyResult, *, over: bool = True
) -> Iterator[tuple[str, dict[str, object] | None]]:
    """Yield key and value of each record to write; the summary makes the others those of the result.

    Verdicts of tables that this verification has not compared are deleted, so that a report is of one run.

    Args:
        ledger: The ledger before.
        result: The result.
        over: As for ``write_verdicts``.
    """
    compared = {verdict.table for verdict in result.tables}
    for table in ledger.verdicts.keys() - compared:
        yield VERIFY_TABLE_PREFIX + table, None
    for verdict in result.tables:
        yield VERIFY_TABLE_PREFIX + verdict.table, {"run": result.run} | verdict.to_json()
    yield VERIFY_KEY, result.summary_json()
    for key in done_keys(ledger, except_run="" if over else result.run):
        yield key, None


def read_verify_result(ledger: LedgerState, run: str = "") -> VerifyResult | None:
    """Return the result of the last verification; None if there is none, or it is of another run.

    Args:
        ledger: The ledger.
        run: Id of the run; empty for any.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    summary = ledger.other_records.get(VERIFY_KEY)
    if summary is None or (run and summary["run"] != run):
        return None
    verdicts = []
    for table, value in sorted(ledger.verdicts.items()):
        with record_location(f"key {VERIFY_TABLE_PREFIX}{table}"):
            verdict = decode(value)
            if verdict["run"] == summary["run"]:
                verdicts.append(verdict)
    with record_location(f"key {VERIFY_KEY}"):
        return VerifyResult.from_json({**summary, "tables": verdicts})

"""Every way the server says no has a name, a remedy and a verdict on retrying."""

from __future__ import annotations

import socket
import ssl

import pymysql
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception, server_error
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    BinlogPurgedError,
    ServerIdInUseError,
    SourceAuthError,
    SourceConnectionError,
    SourceError,
    SourcePrivilegeError,
    SourceSettingError,
)

DUMP_TEXTS = {
    BinlogPurgedError: [
        "Could not find first log file name in binary log index file",
        "Could not open log file",
        "Cannot replicate because the source purged required binary logs. Replicate the missing transactions",
        "The slave is connecting using MASTER_AUTO_POSITION = 1, but the master has purged binary logs",
        "Client requested source to start replication from position > file size",
        "Client requested master to start replication from impossible position",
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID.",
    ],
    ServerIdInUseError: [
        "A slave with the same server_uuid/server_id as this slave has connected to the master; the first event",
        "A replica with the same server_uuid/server_id as this replica has connected to the source;",
    ],
    SourceSettingError: [
        "Binary log is not open",
        "Misconfigured source - server_id was not set",
        "The replication sender thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF",
        "Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file ./binlog.000002, position 158.",
        "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file ./binlog.000002, position 158.",
        "Replica can not handle replication events with the checksum that source is configured to log",
    ],
    BinlogCorruptError: [
        "bogus data in log event; the first event 'binlog.000001' at 500",
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source",
        "binlog truncated in the middle of event; consider out of disk space on source",
        "event read from binlog did not pass checksum algorithm check specified on --binlog-checksum option",
    ],
    SourceError: ["something that nobody has seen"],
}


@pytest.mark.req("FAULT-04")
@for_each(("text", "error"), [(t, error) for error, texts in DUMP_TEXTS.items() for t in texts])
def test_the_text_decides_what_ended_a_dump(text: str, error: type[SourceError]) -> None:
    found = server_error(1236, text, "binlog.000001:4")
    assert type(found) is error
    assert text in found.why and found.where == "binlog.000001:4" and found.remedy


@for_each(
    ("code", "error", "retriable"),
    [
        (1045, SourceAuthError, False),
        (3118, SourceAuthError, False),
        (3955, SourceAuthError, False),
        (1862, SourceAuthError, False),
        (1129, SourceAuthError, False),
        (3159, SourceAuthError, False),
        (3032, SourceConnectionError, True),
        (1226, SourceConnectionError, True),
        (1203, SourceConnectionError, True),
        (1135, SourceConnectionError, True),
        (3168, SourceConnectionError, True),
        (1184, SourceConnectionError, True),
        (1317, SourceConnectionError, True),
        (4031, SourceConnectionError, True),
        (1213, SourceError, True),
        (1227, SourcePrivilegeError, False),
        (1142, SourcePrivilegeError, False),
        (1040, SourceConnectionError, True),
        (2003, SourceConnectionError, True),
        (2013, SourceConnectionError, True),
        (1053, SourceConnectionError, True),
        (2026, SourceConnectionError, False),
        (1381, SourceSettingError, False),
        (3024, SourceError, True),
        (1064, SourceError, False),
    ],
)
def test_the_number_decides_otherwise(code: int, error: type[SourceError], retriable: bool) -> None:
    found = from_exception(pymysql.OperationalError(code, "text"), "db:3306")
    assert type(found) is error and found.can_retry is retriable
    assert f"MySQL error {code}: text" in found.why


def test_a_failing_init_connect_is_no_broken_connection() -> None:
    text = "Aborted connection 40 to db: 'unconnected' user: 'u' host: 'h' (init_connect command failed)"
    found = from_exception(pymysql.OperationalError(1184, text), "db:3306")
    assert type(found) is SourceSettingError and "init_connect" in found.what and not found.can_retry


def test_a_query_that_took_too_long_is_no_broken_connection() -> None:
    found = from_exception(pymysql.OperationalError(3024, "maximum statement execution time exceeded"), "db:3306")
    assert "max_execution_time" in found.what and "connection" not in found.what


def test_a_lost_transaction_is_distinguished_from_a_purged_one() -> None:
    ahead = server_error(1236, "Replica has more GTIDs than the source has", "")
    assert "lacks transactions" in ahead.what and "replica that has caught up" in ahead.remedy


def test_a_failed_handshake_is_a_matter_of_certificates() -> None:
    error = pymysql.OperationalError(2003, "Can't connect")
    error.original_exception = ssl.SSLCertVerificationError("self-signed certificate")  # type: ignore[attr-defined]
    found = from_exception(error, "db:3306")
    assert type(found) is SourceConnectionError and not found.can_retry
    assert "self-signed" in found.why and "database.ssl.mode" in found.remedy


def test_a_server_that_goes_down_inside_the_handshake_is_worth_a_retry() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.shutdown(socket.SHUT_WR)  # a kill between the greeting and the answer to our first TLS message
        context = ssl.create_default_context()
        with pytest.raises(ssl.SSLError) as cut:
            context.wrap_socket(ours, server_hostname="db")
    error = pymysql.OperationalError(2003, "Can't connect")
    error.original_exception = cut.value  # type: ignore[attr-defined]
    found = from_exception(error, "db:3306")
    assert type(found) is SourceConnectionError and found.can_retry
    assert "broke" in found.what and "EOF" in found.why and "database.ssl.mode" in found.remedy


@for_each(
    ("error", "why"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "timed out"),
        (pymysql.InterfaceError(0, ""), "closed already"),
        (pymysql.InterfaceError("odd"), "odd"),
    ],
)
def test_errors_without_a_number_are_connection_errors(error: Exception, why: str) -> None:
    found = from_exception(error, "db:3306")
    assert type(found) is SourceConnectionError and why in found.why


def test_a_named_error_stays_itself() -> None:
    error = BinlogPurgedError("gone")
    assert from_exception(error, "x") is error

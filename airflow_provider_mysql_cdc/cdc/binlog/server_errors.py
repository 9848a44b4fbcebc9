"""From MySQL's error numbers and texts to named errors.

Numbers: MySQL 9 error reference (server and client errors). 1236 is used for everything that ends a dump, so there the
text decides; both old (master/slave) and new (source/replica) wordings are known.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.errors import (
    READ_AGAIN,
    BinlogCorruptError,
    BinlogPurgedError,
    ServerIdInUseError,
    SourceAuthError,
    SourceConnectionError,
    SourceError,
    SourcePrivilegeError,
    SourceSettingError,
)

DUMP_ERROR = 1236
PARSE_ERROR = 1064
TLS_ERROR = 2026
QUERY_TIMEOUT = 3024


class ErrorTemplate(NamedTuple):
    """Say what a server error means here.

    Args:
        error: Class to raise.
        what: What went wrong.
        remedy: What to do.
        retriable: Overrides the class default.
    """

    error: type[SourceError]
    what: str
    remedy: str
    retriable: bool | None = None

    def build(self, where: str, why: str) -> SourceError:
        """Return the error."""
        return self.error(self.what, where=where, why=why, remedy=self.remedy, retriable=self.retriable)


_AUTH = ErrorTemplate(
    SourceAuthError,
    "MySQL refuses the account",
    "check database.user, database.password and the hosts the account may come from (another account of the same name, "
    "or an anonymous one, may fit this host better); one with REQUIRE SSL or X509 needs database.ssl.mode=required, "
    "and database.ssl.cert with X509",
)
_EXPIRED = ErrorTemplate(
    SourceAuthError,
    "the password of the MySQL account has expired",
    "set another one (ALTER USER ... IDENTIFIED BY) and store it in the connection",
)
_LOCKED = ErrorTemplate(
    SourceAuthError,
    "the MySQL account is locked",
    "ALTER USER ... ACCOUNT UNLOCK; where failed logins have locked it, find first who has a wrong password",
)
_HOST_BLOCKED = ErrorTemplate(
    SourceAuthError,
    "MySQL blocks this host after many broken connections",
    "find what breaks them (a port check, a proxy); then TRUNCATE TABLE performance_schema.host_cache",
)
_TLS_REQUIRED = ErrorTemplate(
    SourceAuthError, "MySQL takes encrypted connections only", "set database.ssl.mode to required or a stricter mode"
)
_OFFLINE = ErrorTemplate(
    SourceConnectionError,
    "MySQL is in offline mode",
    "run the task again when offline_mode is OFF, which administrators set for maintenance",
)
_ACCOUNT_LIMIT = ErrorTemplate(
    SourceConnectionError,
    "a limit of the MySQL account is used up",
    "wait, or raise the limit that the server names (ALTER USER ... WITH MAX_USER_CONNECTIONS, "
    "MAX_CONNECTIONS_PER_HOUR, MAX_QUERIES_PER_HOUR or MAX_UPDATES_PER_HOUR; max_user_connections of the server)",
)
_INIT_CONNECT = ErrorTemplate(
    SourceSettingError,
    "the server's init_connect fails for this account, so each connection is closed",
    "correct init_connect of the server, whose error log has the statement's error, or grant what the statement needs",
)
_DEADLOCK = ErrorTemplate(
    SourceError, "MySQL ended a statement because of a deadlock", "run the task again", retriable=True
)
_PRIVILEGE = ErrorTemplate(
    SourcePrivilegeError,
    "the MySQL account lacks a privilege",
    "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* to the account",
)
_BUSY = ErrorTemplate(
    SourceConnectionError,
    "MySQL takes no further connection",
    "wait, or raise max_connections of the server",
)
_UNREACHABLE = ErrorTemplate(
    SourceConnectionError,
    "MySQL cannot be reached",
    "check database.hostname, database.port and that the server runs",
)
_LOST = ErrorTemplate(
    SourceConnectionError,
    "the connection to MySQL broke",
    "run the task again; if it happens often, look into the server's error log",
)
_TLS = ErrorTemplate(
    SourceConnectionError,
    "no encrypted connection to MySQL",
    "check database.ssl.mode and the certificates",
    False,
)
_TLS_BROKE = ErrorTemplate(
    SourceConnectionError,
    "the connection to MySQL broke while its encryption was negotiated",
    "run the task again; if it never succeeds, check database.ssl.mode, the certificates and any proxy in between",
)
# The other side ended the connection without a TLS alert: a server that goes down or is killed does, or the network.
_TLS_CLOSED_ERRORS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
DUMP_BROKE = "the binlog connection broke"
_BROKEN_TEXTS = frozenset({_LOST.what, _TLS_BROKE.what, DUMP_BROKE})
_BROKEN_ERRORS = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_NO_BINLOG = ErrorTemplate(
    SourceSettingError, "binary logging is off", "start the server with log_bin=ON and binlog_format=ROW"
)
_PURGED = ErrorTemplate(
    BinlogPurgedError,
    "the binlog no longer holds the start position",
    "take a new snapshot (trigger mysql_cdc_snapshot with again=true), then trigger mysql_cdc_verify with repair=yes, "
    "as rows that were deleted meanwhile are still in the topics; and raise binlog_expire_logs_seconds so that files "
    "outlive the longest pause",
)
MISSING_TRANSACTIONS = ErrorTemplate(
    BinlogPurgedError,
    "the server lacks transactions that were already read",
    "let database.hostname lead to a server that holds them (the former primary, or a replica that has caught up); or, "
    "if they are lost for good, as on a restored backup, take a new snapshot (trigger mysql_cdc_snapshot with "
    "again=true), then trigger mysql_cdc_verify with repair=yes, as rows of the lost transactions are still in the "
    "topics",
)
_SERVER_ID_IN_USE = ErrorTemplate(
    ServerIdInUseError,
    "another replication client took our place: it registered with our server id and the UUID of our stream",
    "find out which other run has the same topic.prefix and database.server.id, and stop one of the two: give each "
    "stream its own topic.prefix, and each connector and replica its own database.server.id (writers use the ids after "
    "it as well)",
)
_CORRUPT = ErrorTemplate(
    BinlogCorruptError,
    "the server cannot read its binlog",
    f"check the file with mysqlbinlog --verify-binlog-checksum; if it is damaged, {READ_AGAIN}",
)
_SETTING = ErrorTemplate(
    SourceSettingError, "a server setting keeps the binlog from being read", "change the setting the server names"
)
_GTID_MODE_MISMATCH = ErrorTemplate(
    SourceSettingError,
    "the server no longer sends transactions of this kind",
    "set gtid_mode back to ON_PERMISSIVE (from ON) or OFF_PERMISSIVE (from OFF), run the drain until nothing is left, "
    "and switch again then",
)
_LOCK_TIMEOUT = ErrorTemplate(
    SourceConnectionError,
    "a table stayed locked",
    "end the statement or the LOCK TABLES that holds it (performance_schema.metadata_locks), or raise "
    "snapshot.lock.timeout.ms",
)
_QUERY_TIMEOUT = ErrorTemplate(
    SourceError,
    "MySQL ended a query that took longer than max_execution_time",
    "run the task again when the server has less to do; raise max_execution_time of the server, or take it out of "
    "init_connect: sessions of this package set it to 0, but not before their first queries",
    True,
)
_STATEMENT_REFUSED = ErrorTemplate(SourceError, "MySQL refused a statement", "see the server's message")

# Access denied, anonymous, host unknown, plugin missing.
_BY_CODE: dict[int, ErrorTemplate] = {
    **dict.fromkeys((1045, 1698, 1130, 1251, 1524, 2054, 2059, 2061, 4151), _AUTH),
    **dict.fromkeys((1820, 1862), _EXPIRED),
    # 3955: FAILED_LOGIN_ATTEMPTS.
    **dict.fromkeys((3118, 3955), _LOCKED),
    1129: _HOST_BLOCKED,
    3159: _TLS_REQUIRED,
    3032: _OFFLINE,
    1213: _DEADLOCK,
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), _PRIVILEGE),
    **dict.fromkeys((1040, 1135), _BUSY),
    **dict.fromkeys((1203, 1226), _ACCOUNT_LIMIT),
    **dict.fromkeys((2002, 2003, 2005), _UNREACHABLE),
    **dict.fromkeys((1053, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2006, 2013, 2055, 3168, 3169, 4031), _LOST),
    TLS_ERROR: _TLS,
    1205: _LOCK_TIMEOUT,
    QUERY_TIMEOUT: _QUERY_TIMEOUT,
    1381: _NO_BINLOG,
    1220: _PURGED,
    1373: _PURGED,
}

# Parts of the texts that come with a number, in lower case; the first that occurs counts.
_DUMP_TEXTS: tuple[tuple[str, ErrorTemplate], ...] = (
    ("same server_uuid", _SERVER_ID_IN_USE),
    ("same server_id", _SERVER_ID_IN_USE),
    ("could not find first log file", _PURGED),
    ("could not open log file", _PURGED),
    ("could not find next log", _PURGED),
    ("purged", _PURGED),
    ("position > file size", _PURGED),
    ("impossible position", _PURGED),
    ("more gtids than", MISSING_TRANSACTIONS),
    ("binary log is not open", _NO_BINLOG),
    ("server_id was not set", _SETTING),
    ("cannot replicate anonymous", _GTID_MODE_MISMATCH),
    ("cannot replicate gtid", _GTID_MODE_MISMATCH),
    ("gtid_mode", _SETTING),
    ("auto_position", _SETTING),
    ("checksum that", _SETTING),
    ("bogus data", _CORRUPT),
    ("max_allowed_packet", _CORRUPT),
    ("truncated", _CORRUPT),
    ("crc", _CORRUPT),
    ("checksum", _CORRUPT),
    ("i/o error", _CORRUPT),
    ("event too small", _CORRUPT),
    ("memory allocation failed", _LOST),
)


_BY_TEXT = {DUMP_ERROR: _DUMP_TEXTS, 1184: (("init_connect", _INIT_CONNECT),)}


def error_template(code: int, text: str) -> ErrorTemplate:
    """Return what a server or client error means.

    Args:
        code: MySQL's error number.
        text: Its text.
    """
    lower, by_code = text.lower(), _BY_CODE.get(code, _STATEMENT_REFUSED)
    return next((template for part, template in _BY_TEXT.get(code, ()) if part in lower), by_code)


def is_gtid_mode_mismatch(error: SourceError) -> bool:
    """Return whether a dump ended because of gtid_mode: with ON no anonymous transaction is sent, with OFF no other."""
    return error.what == _GTID_MODE_MISMATCH.what


def server_error(code: int, text: str, where: str) -> SourceError:
    """Return the named error for an error number and text.

    Args:
        code: MySQL's error number.
        text: Its text.
        where: Address, or file and position.
    """
    return error_template(code, text).build(where, f"MySQL error {code}: {text}")


def is_broken_connection(error: SourceError) -> bool:
    """Return whether a connection that had been accepted broke, which another one need not do.

    Args:
        error: From ``from_exception``, with the driver's exception as its cause.
    """
    cause = error.__cause__
    # The driver reports a reset while TLS is negotiated as a server that cannot be reached.
    return error.what in _BROKEN_TEXTS or isinstance(getattr(cause, "original_exception", cause), _BROKEN_ERRORS)


def from_exception(error: Exception, where: str) -> SourceError:
    """Return the named error for an exception of the MySQL driver.

    Args:
        error: The exception; database errors carry (number, text).
        where: Address, or file and position.
    """
    if isinstance(error, SourceError):
        return error
    tls = _tls_cause(error)
    if tls is not None:
        return (_TLS_BROKE if isinstance(tls, _TLS_CLOSED_ERRORS) else _TLS).build(
            where, str(tls) or type(tls).__name__
        )
    if isinstance(error, OSError):
        return _UNREACHABLE.build(where, str(error))
    match error.args:
        case (int() as code, str() as text, *_) if code:
            return server_error(code, text, where)
        case (0, *_):
            return _LOST.build(where, "the connection is closed already")
    return _LOST.build(where, str(error) or type(error).__name__)


def _tls_cause(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS failure behind an error.

    pymysql reports a failed handshake as error 2003 and keeps the cause in ``original_exception``.
    """
    cause = getattr(error, "original_exception", error)
    return cause if isinstance(cause, ssl.SSLError) else None

"""Enumerated property values; each member carries its meaning.

Source of the members: the enums of Debezium 3.6.1 (``BinlogConnectorConfig``, ``MySqlConnectorConfig``,
``CommonConnectorConfig``, ``TemporalPrecisionMode``) and requirement section 12.
"""

from __future__ import annotations

from enum import StrEnum


class DocEnum(StrEnum):
    """A string enum whose members have a text: ``NAME = "value", "text"``."""

    doc: str

    def __new__(cls, value: str, doc: str = "") -> DocEnum:
        """Create a member with its text."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.doc = doc
        return member

    @classmethod
    def docs(cls) -> dict[str, str]:
        """Return value and text of every member, in order."""
        return {m.value: m.doc for m in cls}


class SnapshotMode(DocEnum):
    """When and what to snapshot."""

    INITIAL = "initial", "snapshot structure and rows when no offset is stored, then drain from its position"
    ALWAYS = (
        "always",
        "snapshot structure and rows whenever the snapshot job runs, then drain from its position; where a stream "
        "exists already, drain to the end first and read the rows there",
    )
    INITIAL_ONLY = "initial_only", "snapshot structure and rows when no offset is stored; never drain"
    NO_DATA = "no_data", "record only the structure of the tables, then drain from that position"
    NEVER = "never", "no snapshot; drain from the first binlog file the server still holds"
    WHEN_NEEDED = "when_needed", "as initial, and again when the stored position is no longer in the binlog"
    RECOVERY = "recovery", "record the structure again for a lost schema history; the stored offset stays"

    @property
    def reads_rows(self) -> bool:
        """Say whether the snapshot reads rows, not only the structure of tables."""
        return self not in (SnapshotMode.NO_DATA, SnapshotMode.NEVER, SnapshotMode.RECOVERY)


class WatermarkStrategy(DocEnum):
    """How the window of an incremental snapshot is closed in the signal table."""

    INSERT_INSERT = "insert_insert", "another row is inserted; the rows are never deleted"
    INSERT_DELETE = "insert_delete", "the row that opened the window is deleted; the account needs DELETE for that"


class SnapshotLockingMode(DocEnum):
    """Which lock the snapshot takes, and for how long."""

    MINIMAL = "minimal", "global read lock, or table locks where that is refused, only until every view is open"
    # LOCK TABLES FOR BACKUP does not apply to INSERT, UPDATE and DELETE of InnoDB tables (Percona Server manual,
    # "Backup locks"), so the views of several connections could differ under it.
    MINIMAL_PERCONA = (
        "minimal_percona",
        "as minimal: Percona's backup lock (LOCK TABLES FOR BACKUP) lets InnoDB commit while the views open, so the "
        "global read lock is taken",
    )
    MINIMAL_PERCONA_NO_TABLE_LOCKS = (
        "minimal_percona_no_table_locks",
        "as minimal; stops where the global read lock is refused, instead of falling back to table locks",
    )
    EXTENDED = "extended", "the lock is held until the last row is read"
    NONE = (
        "none",
        "no lock. Exact when no transaction commits while the views are opened, which is tried 50 times. Otherwise a "
        "line in the log warns: rows may hold changes that come once more as events, so keys go back in time. With "
        "gtid_mode=OFF a commit in flight may be missed: use a lock there",
    )


class SslMode(DocEnum):
    """Encryption of the MySQL connection."""

    DISABLED = "disabled", "never encrypted"
    PREFERRED = "preferred", "encrypted when the server offers it"
    REQUIRED = "required", "encrypted or no connection; the certificate is not verified"
    VERIFY_CA = "verify_ca", "as required, and the certificate must come from a trusted authority"
    VERIFY_IDENTITY = "verify_identity", "as verify_ca, and the certificate must name the host"


class DecimalHandlingMode(DocEnum):
    """How DECIMAL and NUMERIC are represented."""

    PRECISE = "precise", "unscaled bytes with Connect's Decimal; exact"
    DOUBLE = "double", "double; may lose digits"
    STRING = "string", "text; exact, the scale is kept in the text only"


class BigIntUnsignedHandlingMode(DocEnum):
    """How BIGINT UNSIGNED is represented."""

    LONG = "long", "signed 64-bit; values above 9223372036854775807 come out negative"
    PRECISE = "precise", "unscaled bytes with Connect's Decimal; exact"


class EventContract(DocEnum):
    """Which generation of Debezium's events is written."""

    CURRENT = "3.x", "what Debezium 3.6 writes"
    OLD = (
        "1.9",
        "what Debezium 1.9.7 writes: no ts_us and ts_ns, four texts of source.snapshot, no version of the envelope, "
        "FLOAT as double and REAL as float (docs/debezium-differences.md)",
    )


class ValueFormat(DocEnum):
    """What the records of tables are."""

    DEBEZIUM = "debezium", "change events as Debezium writes them"
    TICDC_AVRO = "ticdc-avro", "flat rows in Avro as TiCDC writes them (docs/ticdc.md)"


class TicdcDecimalMode(DocEnum):
    """How TiCDC's protocol writes DECIMAL."""

    PRECISE = "precise", "bytes with the logical type decimal"
    STRING = "string", "text"


class TicdcBigintUnsignedMode(DocEnum):
    """How TiCDC's protocol writes BIGINT UNSIGNED."""

    LONG = "long", "a number; above 9223372036854775807 it becomes negative"
    STRING = "string", "text"


class SourceStructVersion(DocEnum):
    """Which generation of the ``source`` block is written."""

    V2 = "v2", "the block of today's event contract"
    V1 = "v1", "the block before Debezium 0.10, and schema changes of that time (DDL text only)"


class BinaryHandlingMode(DocEnum):
    """How BINARY, VARBINARY and BLOB are represented."""

    BYTES = "bytes", "bytes (base64 text in JSON)"
    BASE64 = "base64", "base64 text"
    BASE64_URL_SAFE = "base64-url-safe", "base64 text of the URL-safe alphabet"
    HEX = "hex", "hexadecimal text"


class TimePrecisionMode(DocEnum):
    """How temporal values other than TIMESTAMP are represented."""

    ADAPTIVE_TIME_MICROSECONDS = (
        "adaptive_time_microseconds",
        "unit by the column's fraction digits; TIME always in microseconds",
    )
    ADAPTIVE = (
        "adaptive",
        "as before, TIME by its fraction digits too (Debezium 1.9; Debezium 3 refuses it); a TIME with at most three "
        "digits beyond 596 hours cannot be read",
    )
    CONNECT = (
        "connect",
        "Connect's Date, Time and Timestamp in milliseconds; a TIME outside the day is null (it is counted, and the "
        "first one of a column is logged), and cannot be read if the column is NOT NULL",
    )
    ISOSTRING = "isostring", "ISO 8601 text; a TIME outside the day as with connect"
    MICROSECONDS = "microseconds", "always microseconds"
    NANOSECONDS = "nanoseconds", "always nanoseconds; a DATETIME beyond the years 1677 to 2262 as a TIME with connect"


class NameAdjustmentMode(DocEnum):
    """How names are adjusted to Avro's rules."""

    NONE = "none", "not at all"
    AVRO = "avro", "characters that Avro does not allow become underscores; a leading digit gets one before it"
    AVRO_UNICODE = "avro_unicode", "such characters, and underscores, become `_u` and their code in hexadecimal"


class RowFailureMode(DocEnum):
    """What happens with a row that holds a value which cannot be represented."""

    FAIL = "fail", "stop with an error that names position, table, column and row"
    WARN = "warn", "leave the row out, log it, count it, and send it to the dead-letter topic where one is set"
    SKIP = "skip", "as warn, without a log line for each row"


class UnloggedChangesMode(DocEnum):
    """What happens after a statement that changed rows of a captured table without row events."""

    WARN = "warn", "log the statement, count it and publish a notification"
    INCREMENTAL = "incremental", "also read the table again with an incremental snapshot, if rows were added or filled"


class NewTablesMode(DocEnum):
    """What happens with the earlier rows of a table that joins a running stream."""

    OFF = "off", "each drain logs and counts the table until it was read, or dismissed with `mysql-cdc unread`"
    INCREMENTAL = "incremental", "an incremental snapshot reads the table; `parallel`, of Debezium 1.x, means the same"


class FailureHandlingMode(DocEnum):
    """What happens with rows of a captured table whose structure is not known."""

    FAIL = "fail", "stop with an error that names the event and its position"
    WARN = "warn", "leave the table's rows out and log its name, with the position of the first"
    SKIP = "skip", "leave the table's rows out without a word"


class Operation(DocEnum):
    """Kinds of change that ``skipped.operations`` can leave out."""

    READ = "r", "row read by a snapshot"
    CREATE = "c", "insert"
    UPDATE = "u", "update"
    DELETE = "d", "delete"
    TRUNCATE = "t", "TRUNCATE TABLE"

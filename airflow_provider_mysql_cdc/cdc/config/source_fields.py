"""Properties of the MySQL side: connection, what is captured, snapshot, GTIDs."""

from __future__ import annotations

import zlib

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import SnapshotLockingMode, SnapshotMode, SslMode
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field, Group, Lookup, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.parse_value import Patterns, host_list
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

CONNECTOR_CLASS_NAME = "io.debezium.connector.mysql.MySqlConnector"
WRITER_IDS = 64
"""Server ids a connector reserves: ``database.server.id`` and the 63 after it, one for each writer."""
DERIVED_SERVER_ID_FIRST = 2**30
DERIVED_SERVER_ID_LAST = 2**31 - 1


def derived_server_id(prefix: str) -> int:
    """Return the first server id for a ``topic.prefix``: the same for every run, a multiple of 64 from 2**30 up."""
    slots = (DERIVED_SERVER_ID_LAST + 1 - DERIVED_SERVER_ID_FIRST) // WRITER_IDS
    return DERIVED_SERVER_ID_FIRST + zlib.crc32(prefix.encode()) % slots * WRITER_IDS


def _connector_class(value: str) -> str:
    if value.strip() != CONNECTOR_CLASS_NAME:
        raise ValueError(f"must be {CONNECTOR_CLASS_NAME}")
    return value.strip()


def _pem_file(value: str) -> str:
    if value.strip() and not parse_value.is_pem(value.strip()):
        raise ValueError(
            "a Java key store cannot be read here; convert it to PEM (keytool -importkeystore -deststoretype PKCS12, "
            "then openssl pkcs12) and give a file that ends in .pem, .crt or .cer"
        )
    return value


TOPIC_PREFIX: Field[str] = Field(
    "topic.prefix",
    parse_value.topic_part,
    "",
    "Logical name of this source and prefix of all its topics. Unique; a new prefix is a new stream, which begins "
    "with a snapshot.",
    Group.CONNECTOR,
    aliases=("database.server.name",),
    required=True,
    refs=("CFG-08",),
)
NAME: Field[str] = Field(
    "name",
    parse_value.as_text,
    "",
    "Connector name, as in a Kafka Connect configuration; it has no effect: `topic.prefix` names the stream.",
    Group.CONNECTOR,
    derive=lambda get: get[TOPIC_PREFIX],
    derived_from="`topic.prefix`",
    refs=("CFG-01",),
    pin_scope=PinScope.NOTHING,
)
CONNECTOR_CLASS: Field[str] = Field(
    "connector.class",
    _connector_class,
    CONNECTOR_CLASS_NAME,
    "Connector class of a Kafka Connect configuration; only the MySQL connector's is accepted.",
    Group.CONNECTOR,
    refs=("CFG-02",),
    pin_scope=PinScope.NOTHING,
)

DATABASE_HOSTNAME: Field[str] = Field(
    "database.hostname",
    host_list,
    "",
    "Host name or address of the MySQL server; or several servers of one replication cluster as "
    "`host:port,host:port`, where `database.port` is the port of those without one. A job takes the one that the "
    "stream was read from, if it answers, else the first one that answers.",
    Group.CONNECTION,
    required=True,
    refs=("CFG-04",),
    pin_scope=PinScope.NOTHING,
)
DATABASE_PORT: Field[int] = Field(
    "database.port",
    parse_value.integer(1, 65535),
    3306,
    "TCP port of the MySQL server.",
    Group.CONNECTION,
    refs=("CFG-05",),
    pin_scope=PinScope.NOTHING,
)
DATABASE_USER: Field[str] = Field(
    "database.user",
    parse_value.as_text,
    "",
    "MySQL account.",
    Group.CONNECTION,
    required=True,
    refs=("CFG-06",),
    pin_scope=PinScope.NOTHING,
)
DATABASE_PASSWORD: Field[Secret] = Field(
    "database.password",
    parse_value.secret,
    Secret(""),
    "Password of the account; absent for an account without one.",
    Group.CONNECTION,
    secret=True,
    refs=("CFG-07",),
    pin_scope=PinScope.NOTHING,
)
DATABASE_SERVER_ID: Field[int] = Field(
    "database.server.id",
    parse_value.integer(1, 2**32 - WRITER_IDS),
    0,
    f"First of {WRITER_IDS} replication client ids; writer N registers with this number plus N. They must be unique "
    f"among all servers and replication clients of the cluster. When absent, it is computed from `topic.prefix` "
    f"(CRC-32, a multiple of {WRITER_IDS} from {DERIVED_SERVER_ID_FIRST} to {DERIVED_SERVER_ID_LAST}): the same "
    "in every run, so "
    "that a retry takes the place of the run before it.",
    Group.CONNECTION,
    derive=lambda get: derived_server_id(get[TOPIC_PREFIX]),
    derived_from="computed from `topic.prefix`",
    refs=("CFG-09", "STRM-02"),
    pin_scope=PinScope.NOTHING,
)
CONNECT_TIMEOUT_MS: Field[int] = Field(
    "connect.timeout.ms",
    parse_value.integer(1, parse_value.INT32_MAX),
    30_000,
    "Longest wait for a connection to MySQL, the login included, in milliseconds; at most `source.silence.timeout.ms`.",
    Group.CONNECTION,
    refs=("CFG-34",),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
DATABASE_QUERY_TIMEOUT_MS: Field[int] = Field(
    "database.query.timeout.ms",
    parse_value.integer(0, parse_value.INT32_MAX),
    600_000,
    "Longest wait for the answer to a statement, in milliseconds; 0 for no limit.",
    Group.CONNECTION,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
CONNECT_MAX_ATTEMPTS: Field[int] = Field(
    "connect.max.attempts",
    parse_value.integer(0, 1_000),
    8,
    "Attempts of a writer to connect again when its connection to the binlog breaks inside a batch, without an event "
    "in between; it then goes on behind what it has read. Also those to plan a batch again, from the beginning of its "
    "queries, and to do the rest of a job whose view breaks. The delay before them doubles from 0.5 s to 30 s. With 0 "
    "the task fails at once, and Airflow's retry continues.",
    Group.CONNECTION,
    provider_specific=True,
    refs=("FAULT-03", "FAULT-06"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)

SOURCE_SILENCE_TIMEOUT_MS: Field[int] = Field(
    "source.silence.timeout.ms",
    parse_value.integer(1_000, parse_value.INT32_MAX),
    60_000,
    "A binlog connection on which neither an event nor a heartbeat arrives for this long counts as broken, in "
    "milliseconds. A query without an answer for this long is checked over another connection, whether the server "
    "still "
    "executes it; and a run that is silent for this long loses its lock on the topic.prefix.",
    Group.CONNECTION,
    provider_specific=True,
    refs=("FAULT-06",),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)

DATABASE_SSL_MODE: Field[SslMode] = Field(
    "database.ssl.mode",
    parse_value.choice(SslMode),
    SslMode.PREFERRED,
    "Encryption of the MySQL connection. (Debezium 1.9 defaults to `disabled`.)",
    Group.TLS,
    enum=SslMode.docs(),
    refs=("CFG-48",),
    pin_scope=PinScope.NOTHING,
)
DATABASE_SSL_CA: Field[str | None] = Field(
    "database.ssl.ca",
    parse_value.optional_text,
    None,
    "PEM file with the authorities that may sign the server's certificate.",
    Group.TLS,
    aliases=(Alias("database.ssl.truststore", _pem_file),),
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
DATABASE_SSL_CERT: Field[str | None] = Field(
    "database.ssl.cert",
    parse_value.optional_text,
    None,
    "PEM file with the client's certificate (and its key, when `database.ssl.key` is absent).",
    Group.TLS,
    aliases=(Alias("database.ssl.keystore", _pem_file),),
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
DATABASE_SSL_KEY: Field[str | None] = Field(
    "database.ssl.key",
    parse_value.optional_text,
    None,
    "PEM file with the client's key.",
    Group.TLS,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
DATABASE_SSL_KEY_PASSWORD: Field[Secret | None] = Field(
    "database.ssl.key.password",
    parse_value.optional_secret,
    None,
    "Password of the client's key.",
    Group.TLS,
    aliases=("database.ssl.keystore.password",),
    secret=True,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)


def _filter_list(name: str, doc: str, alias: str, *refs: str) -> Field[Patterns]:
    return Field(
        name,
        parse_value.patterns,
        Patterns(),
        doc,
        Group.FILTERS,
        aliases=(alias,),
        refs=refs,
        set_by=SetBy.RUN,
    )


_PATTERN_HINT = (
    "Comma-separated regular expressions, each for the whole name, ASCII letters without case; `\\,` is a comma."
)

DATABASE_INCLUDE_LIST = _filter_list(
    "database.include.list",
    f"Databases to capture; all when empty. {_PATTERN_HINT}",
    "database.whitelist",
    "STRM-12",
    "CFG-10",
)
DATABASE_EXCLUDE_LIST = _filter_list(
    "database.exclude.list",
    f"Databases not to capture; not together with the include list. {_PATTERN_HINT}",
    "database.blacklist",
    "STRM-12",
    "FAULT-20",
    "CFG-11",
)
TABLE_INCLUDE_LIST = _filter_list(
    "table.include.list",
    f"Tables (`database.table`) to capture; all of the captured databases when empty. {_PATTERN_HINT}",
    "table.whitelist",
    "STRM-13",
    "CFG-12",
)
TABLE_EXCLUDE_LIST = _filter_list(
    "table.exclude.list",
    f"Tables (`database.table`) not to capture; not together with the include list. {_PATTERN_HINT}",
    "table.blacklist",
    "STRM-13",
    "FAULT-20",
    "CFG-13",
)
TABLE_IGNORE_BUILTIN: Field[bool] = Field(
    "table.ignore.builtin",
    parse_value.boolean,
    True,
    "Leave out the system databases mysql, performance_schema, sys and information_schema, regardless of the lists.",
    Group.FILTERS,
    refs=("STRM-14", "CFG-47"),
)

OLD_SNAPSHOT_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}

SNAPSHOT_MODE: Field[SnapshotMode] = Field(
    "snapshot.mode",
    parse_value.choice(SnapshotMode, OLD_SNAPSHOT_MODES),
    SnapshotMode.INITIAL,
    "When and what to snapshot. The older names `schema_only` (no_data) and `schema_only_recovery` (recovery) are "
    "accepted.",
    Group.SNAPSHOT,
    enum=SnapshotMode.docs(),
    refused={
        "custom": "a snapshotter class is Java code; write the choice into the DAG instead",
        "configuration_based": "choose one of the named modes",
    },
    refs=("CFG-50",),
    pin_scope=PinScope.SNAPSHOT,
    set_by=SetBy.RUN,
)
SNAPSHOT_LOCKING_MODE: Field[SnapshotLockingMode] = Field(
    "snapshot.locking.mode",
    parse_value.choice(SnapshotLockingMode),
    SnapshotLockingMode.MINIMAL,
    "Which lock the snapshot takes, and for how long.",
    Group.SNAPSHOT,
    enum=SnapshotLockingMode.docs(),
    refused={
        "custom": "a locking class is Java code",
        "minimal_at_least_once": "rows read without a consistent view cannot be delivered exactly once",
    },
    refs=("CFG-51",),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
SNAPSHOT_LOCK_TIMEOUT_MS: Field[int] = Field(
    "snapshot.lock.timeout.ms",
    parse_value.integer(1, parse_value.INT32_MAX),
    10_000,
    "Longest wait for the snapshot's lock, in milliseconds; then the snapshot fails.",
    Group.SNAPSHOT,
    refs=("CFG-62", "FAULT-17"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
SNAPSHOT_CHUNK_ROWS: Field[int] = Field(
    "snapshot.chunk.rows",
    parse_value.integer(1, parse_value.INT32_MAX),
    100_000,
    "Rows of a snapshot chunk, the unit of parallel work and of what stays after a failure. Tables are cut along their "
    "key, as far as its columns are whole numbers, CHAR, VARCHAR, BINARY, VARBINARY, DATE, DATETIME, TIMESTAMP, TIME, "
    "YEAR or DECIMAL. A table without a key, or whose key begins with another type, is one chunk: an executor keeps "
    "its rows on its local disk (TMPDIR), and they must be written within 90 % of transaction.timeout.ms.",
    Group.SNAPSHOT,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
SNAPSHOT_PARALLELISM: Field[int] = Field(
    "snapshot.parallelism",
    parse_value.integer(0, 1_024),
    0,
    "Tasks that read the snapshot at once; 0 takes as many as Spark has slots.",
    Group.SNAPSHOT,
    aliases=("snapshot.max.threads",),
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)


def ssl_files_problem(get: Lookup) -> str | None:
    """Return what is wrong with the TLS files, or None."""
    if get[DATABASE_SSL_KEY] and not get[DATABASE_SSL_CERT]:
        return "a client key needs its certificate"
    return None


GTID_SOURCE_INCLUDES: Field[Patterns] = Field(
    "gtid.source.includes",
    parse_value.patterns,
    Patterns(),
    "Regular expressions that match whole server UUIDs: only transactions of these servers count when the stream goes "
    "on at another server. What it lacks of other servers, or has executed besides, does not stop the stream.",
    Group.CONNECTION,
    refs=("CFG-35", "STRM-07", "SETUP-32"),
)
GTID_SOURCE_EXCLUDES: Field[Patterns] = Field(
    "gtid.source.excludes",
    parse_value.patterns,
    Patterns(),
    "As `gtid.source.includes`, the servers whose transactions do not count.",
    Group.CONNECTION,
    refs=("CFG-36", "STRM-07", "SETUP-32"),
)
GTID_SOURCE_FILTER_DML_EVENTS: Field[bool] = Field(
    "gtid.source.filter.dml.events",
    parse_value.boolean,
    True,
    "Whether rows of transactions that do not count are not written. With `false` they are, and only transactions that "
    "another server lacks are passed over: those that it has executed besides stop the stream, or rows would be lost. "
    "Without `gtid.source.includes` and `gtid.source.excludes` it has no effect.",
    Group.CONNECTION,
    refs=("STRM-07",),
)
GTID_IGNORE_ON_RECOVERY: Field[bool] = Field(
    "gtid.ignore.on.recovery",
    parse_value.boolean,
    False,
    "Whether the stream goes on by file and position alone, so that it is refused at any server but the one that it "
    "was read from.",
    Group.CONNECTION,
    pin_scope=PinScope.NOTHING,
)

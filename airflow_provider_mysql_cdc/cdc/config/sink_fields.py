"""Properties of the Kafka side, of draining and committing, of rows that cannot be represented, and of verify."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import RowFailureMode
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.source_fields import WRITER_IDS


def bootstrap_servers(value: str) -> str:
    """Return a list of ``host:port`` without blanks; the port may be missing."""
    entries = [e.strip() for e in value.split(",") if e.strip()]
    if not entries:
        raise ValueError("must be a list of host:port")
    for entry in entries:
        port = entry.rpartition("]")[2].rpartition(":")[2] if ":" in entry.rpartition("]")[2] else "9092"
        if any(c.isspace() for c in entry) or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"must be a list of host:port; {entry!r} is none")
    return ",".join(entries)


HISTORY_KAFKA_BOOTSTRAP_SERVERS: Field[str] = Field(
    "schema.history.internal.kafka.bootstrap.servers",
    bootstrap_servers,
    "",
    "Kafka cluster of the schema history. It is the cluster of the events, because both are committed together; it "
    "serves in place of `kafka.bootstrap.servers`, so that a Debezium configuration works as it is.",
    Group.HISTORY,
    derive=lambda get: get[KAFKA_BOOTSTRAP_SERVERS],
    derived_from="`kafka.bootstrap.servers`",
    refs=("CFG-75",),
    pin_scope=PinScope.NOTHING,
)
KAFKA_BOOTSTRAP_SERVERS: Field[str] = Field(
    "kafka.bootstrap.servers",
    bootstrap_servers,
    "",
    "Kafka cluster, as a list of host:port.",
    Group.KAFKA,
    aliases=("bootstrap.servers",),
    derive=lambda get: get[HISTORY_KAFKA_BOOTSTRAP_SERVERS] if get.is_set(HISTORY_KAFKA_BOOTSTRAP_SERVERS) else "",
    derived_from="`schema.history.internal.kafka.bootstrap.servers`; one of the two is required",
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
TRANSACTION_TIMEOUT_MS: Field[int] = Field(
    "transaction.timeout.ms",
    parse_value.integer(10_000, parse_value.INT32_MAX),
    600_000,
    "Longest life of a Kafka transaction, in milliseconds; the broker's transaction.max.timeout.ms (900000) bounds it. "
    "A dead writer's records block readers at most this long.",
    Group.KAFKA,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)

DRAIN_WRITERS: Field[int] = Field(
    "drain.writers",
    parse_value.integer(1, WRITER_IDS),
    1,
    "Writers (Spark tasks) of a batch; each reads the whole binlog range and writes the partitions it owns.",
    Group.DRAIN,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
DRAIN_SMALL_BATCH_BYTES: Field[int] = Field(
    "drain.small.batch.bytes",
    parse_value.integer(0),
    8 * 2**20,
    "A batch with less binlog than this many bytes is drained by one writer, regardless of `drain.writers`.",
    Group.DRAIN,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
POLL_INTERVAL_MS: Field[int] = Field(
    "poll.interval.ms",
    parse_value.integer(1, parse_value.INT32_MAX),
    350,
    "Milliseconds from the start of one batch of a `run_for` to the start of the next, at least: events that arrive in "
    "between are one batch. The next batch starts at once after one that took longer, after chunks of an incremental "
    "snapshot, and when a source that was quiet for longer has something new. From 1,000 records a second on, batches "
    "begin twice as far apart, or 700 ms if that is less, since fewer batches cost less. With fewer records they begin "
    "up to a quarter further apart, as far as half of them are visible within 250 ms all the same. Debezium's default "
    "is 500.",
    Group.DRAIN,
    refs=("CFG-33", "STRM-33"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
MAX_BATCH_BYTES: Field[int] = Field(
    "max.batch.bytes",
    parse_value.integer(0),
    0,
    "A batch ends at the end of the first binlog file that takes it beyond this many bytes; 0 for no limit.",
    Group.DRAIN,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
COMMIT_BYTES: Field[int] = Field(
    "commit.bytes",
    parse_value.integer(1_024, 2**40),
    32 * 2**20,
    "A writer commits its Kafka transaction after this many bytes.",
    Group.DRAIN,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
COMMIT_INTERVAL_MS: Field[int] = Field(
    "commit.interval.ms",
    parse_value.integer(100, parse_value.INT32_MAX),
    10_000,
    "A writer commits its Kafka transaction after this many milliseconds, when it holds anything.",
    Group.DRAIN,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)


ERRORS_TOLERANCE: Field[str] = Field(
    "errors.tolerance",
    lambda value: _parse_tolerance(value.strip().lower()),
    "none",
    "`all` is `event.processing.failure.handling.mode=warn`, unless that is set: rows with a value that cannot be "
    "represented are left out, into `errors.deadletterqueue.topic.name` if it is set. Records are never left out for "
    "other reasons.",
    Group.EVENTS,
    enum={"none": "a row that cannot be represented stops the run", "all": "it is left out"},
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
EVENT_PROCESSING_FAILURE_HANDLING_MODE: Field[RowFailureMode] = Field(
    "event.processing.failure.handling.mode",
    parse_value.choice(RowFailureMode, {"ignore": "skip"}),
    RowFailureMode.FAIL,
    "Reaction to a row with a value that cannot be decoded or represented. The other rows of its event are written in "
    "any case but `fail`. Damaged events, and tables whose structure is not known, always stop the run.",
    Group.EVENTS,
    aliases=("event.deserialization.failure.handling.mode",),
    enum=RowFailureMode.docs(),
    derive=lambda get: RowFailureMode.WARN if get[ERRORS_TOLERANCE] == "all" else RowFailureMode.FAIL,
    derived_from="`fail`, or `warn` with `errors.tolerance=all`",
    refs=("STRM-23", "CFG-28"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
DEAD_LETTER_TOPIC: Field[str] = Field(
    "errors.deadletterqueue.topic.name",
    lambda value: parse_value.topic_part(value) if value.strip() else "",
    "",
    "Topic for rows that are left out (`event.processing.failure.handling.mode`): position, row key, the values that "
    "could be read, and the cause, with headers `__connect.errors.*`; in the same Kafka transaction as the other rows. "
    "Empty for none: then such rows are only counted and logged.",
    Group.TOPICS,
    pin_scope=PinScope.NOTHING,
)


def _parse_tolerance(value: str) -> str:
    if value not in ("none", "all"):
        raise ValueError("must be none or all")
    return value


def _parse_placeholder(value: str) -> str:
    if value.startswith("hex:"):
        try:
            bytes.fromhex(value[4:])
        except ValueError:
            raise ValueError("hexadecimal digits must follow hex:") from None
    return value


UNAVAILABLE_VALUE_PLACEHOLDER: Field[str] = Field(
    "unavailable.value.placeholder",
    _parse_placeholder,
    "__debezium_unavailable_value",
    "Stands for the value of a character, JSON, ENUM, SET or binary column that the row image leaves out "
    "(binlog_row_image MINIMAL or NOBLOB) and that is not known from the other image; `hex:` and hexadecimal digits "
    "give bytes.",
    Group.EVENTS,
    set_by=SetBy.RUN,
)
UNAVAILABLE_VALUE_AS_NULL: Field[bool] = Field(
    "unavailable.value.as.null",
    parse_value.boolean,
    False,
    "Write null in an after image for a nullable column that the row image leaves out and whose type cannot hold the "
    "placeholder. Null then no longer says that the value is NULL; without it such a row fails "
    "(`event.processing.failure.handling.mode`).",
    Group.EVENTS,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)


VERIFY_ROWS_PER_SECOND: Field[int] = Field(
    "verify.rows.per.second",
    parse_value.integer(0),
    0,
    "Rows that a verification reads from MySQL per second at most, all its tasks together; 0 for no limit.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
VERIFY_GROUP_ROWS: Field[int] = Field(
    "verify.group.rows",
    parse_value.integer(0),
    10_000_000,
    "Rows of tables, as MySQL estimates them, that a verification compares at one position. Tables are compared in "
    "groups of so many rows at most; a larger table is a group of its own. A retry goes on behind the last group. 0 "
    "compares all tables at one position.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
VERIFY_MAX_EXECUTION_TIME_MS: Field[int] = Field(
    "verify.max.execution.time.ms",
    parse_value.integer(0),
    0,
    "Longest time in milliseconds that one SELECT of a verification or repair may take until its last row is sent; "
    "then the server ends it, and the task fails. 0 for no limit.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
REPAIR_MAX_ROWS: Field[int] = Field(
    "repair.max.rows",
    parse_value.integer(1),
    1_000,
    "Rows that one verification repairs at most, all tables together. If more rows differ, none is repaired.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
VERIFY_REPLICA_TIMEOUT_MS: Field[int] = Field(
    "verify.replica.timeout.ms",
    parse_value.integer(0),
    600_000,
    "Longest wait in milliseconds until the replica of `replica_conn_id` has applied what the stream has read.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)

"""Properties of the Kafka side and of draining and committing."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
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

"""Properties of Debezium and Kafka Connect that are known here but not declared as fields.

Either they have **no effect** (they tune machinery this provider does not have; accepted and noted), or they are
**refused** with the reason, because leaving them out silently would change what comes out. A refused property is
accepted with a value that asks for what happens anyway (Debezium's default, as a rule).

Source of the names: Debezium 3.6.1's ``Field`` declarations, Kafka Connect's worker and connector settings, and
requirement section 12.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUEUE = "events go from the decoder straight to Kafka; there is no queue to size"
_CONNECT = "it belongs to a Kafka Connect worker"
_RETRY = "retries are Airflow's: set them on the task"
_HISTORY = "the schema history is read to its end, however long that takes"
_SOCKET = "source.silence.timeout.ms watches the binlog connection"
_DRIVER = "it is a setting of MySQL's Java driver, which is not used here"
_ZONE = "TIMESTAMP values are read in UTC, whatever zone the server or a session is in"
_METRICS = "there are no JMX beans here"
_SCHEDULE = "Airflow's schedule decides when a job runs"
_STRUCTURES = "structures of tables are stored as this package needs them"
_LINEAGE = "lineage is reported by Airflow; openlineage.integration.enabled=true is refused"

NO_EFFECT: dict[str, str] = {
    "tasks.max": "the number of writers is drain.writers",
    "max.queue.size": _QUEUE,
    "max.queue.size.in.bytes": _QUEUE,
    "max.batch.size": _QUEUE,
    "queue.provider.type": _QUEUE,
    "poll.dispatch.interval.ms": _QUEUE,
    "min.row.count.to.stream.results": "snapshot rows are always streamed",
    "snapshot.fetch.size": "snapshot rows are always streamed",
    "query.fetch.size": "query results are small or streamed",
    "connect.keep.alive": _SOCKET,
    "connect.keep.alive.interval.ms": _SOCKET,
    "use.nongraceful.disconnect": _SOCKET,
    "connection.validation.timeout.ms": "connect.timeout.ms bounds the connection",
    "executor.shutdown.timeout.ms": "there are no executor threads",
    "retriable.restart.connector.wait.ms": _RETRY,
    "errors.max.retries": _RETRY,
    "errors.retry.timeout": _RETRY,
    "errors.retry.delay.initial.ms": _RETRY,
    "errors.retry.delay.max.ms": _RETRY,
    "internal.custom.retriable.exception": _RETRY,
    "errors.log.enable": "errors are always logged",
    "errors.log.include.messages": "errors are always logged",
    "config.action.reload": _CONNECT,
    "exactly.once.support": "events are always delivered exactly once",
    "transaction.boundary": "set commit.bytes and commit.interval.ms instead",
    "transaction.boundary.interval.ms": "set commit.interval.ms instead",
    "offsets.storage.topic": "offsets are kept by Airflow, with ledger.topic as the second copy",
    "offset.storage": _CONNECT,
    "offset.storage.file.filename": _CONNECT,
    "offset.storage.topic": _CONNECT,
    "offset.flush.interval.ms": _CONNECT,
    "offset.flush.timeout.ms": _CONNECT,
    "config.storage.topic": _CONNECT,
    "status.storage.topic": _CONNECT,
    "plugin.path": _CONNECT,
    "plugin.discovery": _CONNECT,
    "listeners": _CONNECT,
    "topic.cache.size": "topic names are computed once for each table version",
    "advanced.metrics.enable": _METRICS,
    "internal.advanced.metrics.enable": _METRICS,
    "statistics.metrics.enabled": _METRICS,
    "custom.metric.tags": _METRICS,
    "snapshot.delay.ms": _SCHEDULE,
    "streaming.delay.ms": _SCHEDULE,
    "snapshot.tables.order.by.row.count": "chunks of all tables are read in parallel",
    "legacy.snapshot.max.threads": "set snapshot.parallelism instead",
    "internal.legacy.snapshot.max.threads": "set snapshot.parallelism instead",
    "snapshot.max.threads.multiplier": "set snapshot.chunk.rows instead",
    "signal.poll.interval.ms": "signals are processed between two batches",
    "signal.file": "signals are read from a file only where signal.enabled.channels has file, which is refused",
    "signal.emit.failure.max.retries": _RETRY,
    "signal.emit.failure.backoff.ms": _RETRY,
    "custom.sanitize.pattern": "every property that can hold a secret is known, and its value never shown",
    "memory.management.tables.class": _STRUCTURES,
    "memory.management.schemas.class": _STRUCTURES,
    **{
        f"openlineage.integration.{name}": _LINEAGE
        for name in (
            "config.file.path",
            "dataset.kafka.bootstrap.servers",
            "job.description",
            "job.namespace",
            "job.owners",
            "job.tags",
        )
    },
    "internal.offset.activity.monitor.interval.ms": _SOCKET,
    "internal.log.position.check.enable": "the position is always checked",
    "gtid.new.channel.position": "a stored position that is no longer there always stops the run",
    "ddl.parser.type": "there is one DDL parser",
    "database.server.id.offset": "snapshots register no replication clients",
    "connectionTimeZone": _ZONE,
    "database.connectionTimeZone": _ZONE,
    "database.serverTimezone": _ZONE,
    "driver.connectionTimeZone": _ZONE,
    "driver.serverTimezone": _ZONE,
    "database.jdbc.driver": _DRIVER,
    "database.allowPublicKeyRetrieval": "the server's public key is fetched when the connection needs it",
    "database.useUnicode": _DRIVER,
    "database.characterEncoding": _DRIVER,
    "database.useCursorFetch": _DRIVER,
    "database.tinyInt1isBit": _DRIVER,
    "database.zeroDateTimeBehavior": _DRIVER,
    "database.ssl.truststore.password": "PEM files of certificates have no password",
    "schema.history.internal.name": _HISTORY,
    "schema.history.internal.connector.class": _HISTORY,
    "schema.history.internal.connector.id": _HISTORY,
    "schema.history.internal.kafka.recovery.poll.interval.ms": _HISTORY,
    "schema.history.internal.recovery.poll.interval.ms": _HISTORY,
    "schema.history.internal.kafka.recovery.attempts": _HISTORY,
    "schema.history.internal.recovery.attempts": _HISTORY,
    "schema.history.internal.kafka.query.timeout.ms": _HISTORY,
    "schema.history.internal.kafka.create.timeout.ms": _HISTORY,
    "schema.history.internal.kafka.buffer.batch.size": _HISTORY,
    "schema.history.internal.memory.optimization": "equal columns share memory in any case",
    "schema.history.internal.prefer.ddl": "the history holds statements",
    **{
        f"{part}.converter.{name}": why
        for part in ("key", "value")
        for name, why in (
            ("enhanced.avro.schema.support", "Debezium's schemas have neither Avro enumerations nor packages"),
            ("schemas.cache.config", "each schema is requested once for a table version of a run"),
            ("max.schemas.per.subject", "each schema is requested once for a table version of a run"),
            ("http.connect.timeout.ms", "http.read.timeout.ms bounds each request"),
            ("flatten.unions", "it concerns consumers only"),
            ("schema.registry.ssl.truststore.password", "PEM files of certificates have no password"),
        )
    },
    "key.converter.schemas.cache.size": "schemas are compiled once for each table version",
    "value.converter.schemas.cache.size": "schemas are compiled once for each table version",
    "topic.creation.enable": "missing topics are always created",
}


@dataclass(frozen=True, slots=True)
class RefusedProperty:
    """Describe a known property that this release does not support.

    Args:
        name: Property name; ``*`` stands for any text.
        why: The reason.
        accepted_values: Values (lower case) that ask for what happens anyway; an empty value leaves the default, too.
        note: What a person should know about an accepted value.
    """

    name: str
    why: str
    accepted_values: tuple[str, ...] = ()
    note: str = ""


_CONTRACT = "this release writes one form of events, Debezium 3's"
_CLASSES = "Java classes cannot be loaded here"
_NAMING = "topics are named topic.prefix.database.table"
_OTHER_PART = "it is about the other converter: set it there"
_PREFIXED = "io.confluent.kafka.serializers.schema.id.prefixschemaidserializer"

REFUSED_PROPERTIES: tuple[RefusedProperty, ...] = (
    RefusedProperty("sourceinfo.struct.maker", _CLASSES, ("io.debezium.connector.mysql.mysqlsourceinfostructmaker",)),
    RefusedProperty("transaction.metadata.factory", _CLASSES,
            ("io.debezium.pipeline.txmetadata.defaulttransactionmetadatafactory",)),
    RefusedProperty("topic.naming.strategy", _NAMING, ("io.debezium.schema.defaulttopicnamingstrategy",)),
    RefusedProperty("topic.delimiter", _NAMING, (".",)),
    RefusedProperty("topic.heartbeat.name", _NAMING),
    RefusedProperty("topic.regex", _NAMING),
    RefusedProperty("topic.replacement", _NAMING),
    RefusedProperty("topic.key.*", _NAMING),
    RefusedProperty("skip.messages.without.change", "every change is written", ("false",)),
    RefusedProperty("event.converting.failure.handling.mode", "values are never left out", ("fail", "warn"),
            "a value that cannot be converted is never replaced by null; event.processing.failure.handling.mode says "
            "what happens to its event"),
    RefusedProperty("resolve.create.table.like.schema", "the structure comes from the history alone", ("false",)),
    RefusedProperty("binlog.buffer.size", "transactions are never held back", ("0",)),
    RefusedProperty("binlog.net.write.timeout", "the server's own setting applies", ("0",)),
    RefusedProperty("binlog.net.read.timeout", "the server's own setting applies", ("0",)),
    RefusedProperty("snapshot.query.mode", "a snapshot reads whole tables", ("select_all",)),
    RefusedProperty("snapshot.query.mode.custom.name", _CLASSES),
    RefusedProperty("snapshot.mode.custom.name", _CLASSES),
    RefusedProperty("snapshot.mode.configuration.based.*", "choose one of the named modes of "
    "snapshot.mode", ("false",)),
    RefusedProperty("snapshot.locking.mode.custom.name", _CLASSES),
    RefusedProperty("database.initial.statements", "sessions are set up by this provider alone", ("",)),
    RefusedProperty("database.protocol", _DRIVER, ("jdbc:mysql",)),
    RefusedProperty("database.useSSL", "use database.ssl.mode"),
    RefusedProperty("database.requireSSL", "use database.ssl.mode"),
    RefusedProperty("database.verifyServerCertificate", "use database.ssl.mode"),
    RefusedProperty("database.sslMode", "use database.ssl.mode"),
    RefusedProperty("database.dbname", "databases are chosen by database.include.list", ("",)),
    RefusedProperty("driver.*", "set driver options with the prefix database. and pymysql's names"),
    RefusedProperty("schema.history.internal", "the schema history is kept in Kafka",
            ("io.debezium.storage.kafka.history.kafkaschemahistory",
             "io.debezium.relational.history.kafkadatabasehistory")),
    RefusedProperty("schema.history.internal.ddl.filter", "a statement is recorded when it can change a captured "
    "table"),
    RefusedProperty("schema.history.internal.file.*", "the schema history is kept in Kafka"),
    RefusedProperty("post.processors", "post-processors are Java code", ("",)),
    RefusedProperty("header.converter", _CLASSES, ("org.apache.kafka.connect.storage.simpleheaderconverter",)),
    RefusedProperty("key.converter.replace.null.with.default", "key columns are never NULL with a "
    "default", ("true", "false")),
    RefusedProperty("key.converter.decimal.format", _CONTRACT, ("base64",)),
    RefusedProperty("value.converter.decimal.format", _CONTRACT, ("base64",)),
    *(
        RefusedProperty(f"{part}.converter.{name}", why, harmless)
        for part in ("key", "value")
        for name, why, harmless in (
            ("latest.compatibility.strict", "an incompatible schema is never used", ("true",)),
            ("use.schema.id", "ids come from the registry for each table's schema", ("-1",)),
            ("scrub.invalid.names", "use field.name.adjustment.mode and schema.name.adjustment.mode", ("false",)),
            ("apicurio.registry.url", f"write {part}.converter.schema.registry.url with /apis/ccompat/v7 in place of "
             "/apis/registry/v2", ()),
            ("apicurio.registry.*", "it is a setting of Apicurio's converter", ()),
            ("schema.registry.ssl.truststore.type", "convert it to PEM", ("pem",)),
            ("schema.registry.ssl.keystore.type", "convert it to PEM", ("pem",)),
            ("*", "docs/properties.md lists the settings of converters that are known", ("",)),
        )
    ),
    RefusedProperty("key.converter.value.schema.id.serializer", _OTHER_PART, (_PREFIXED,)),
    RefusedProperty("value.converter.key.schema.id.serializer", _OTHER_PART, (_PREFIXED,)),
    RefusedProperty("errors.deadletterqueue.context.headers.enable", "dead letters always have their "
    "headers", ("true",)),
    RefusedProperty("errors.deadletterqueue.topic.replication.factor", "set topic.creation.default.* "
    "instead"),
    RefusedProperty("guardrail.collections.max", "the number of tables is not limited", ("0",)),
    RefusedProperty("guardrail.collections.limit.action", "the number of tables is not limited", ("warn",)),
    RefusedProperty("openlineage.integration.*", "lineage is reported by Airflow", ("", "false")),
    RefusedProperty("internal.snapshot.scan.all.columns.force", "only captured tables are described", ("false",)),
    RefusedProperty("internal.implementation", "there is one implementation"),
    RefusedProperty("test.disable.global.locking", "use snapshot.locking.mode", ("false",)),
    RefusedProperty("internal.*", "internal switches of Debezium have no counterpart"),
)  # fmt: skip

_REFUSED_BY_NAME = {r.name: r for r in REFUSED_PROPERTIES if "*" not in r.name}
_REFUSED_BY_PATTERN = tuple(
    (re.compile(".+".join(map(re.escape, r.name.split("*")))), r) for r in REFUSED_PROPERTIES if "*" in r.name
)

PLUGIN_LISTS = {
    "post.processors": "",
}
"""Properties that list names of Java plug-ins, and the prefix under which a plug-in's own settings stand."""


def refused_property(name: str) -> RefusedProperty | None:
    """Return why a property is not supported, or None when it is not one of the known ones."""
    return _REFUSED_BY_NAME.get(name) or next(
        (r for pattern, r in _REFUSED_BY_PATTERN if pattern.fullmatch(name)), None
    )


def plugin_prefixes(properties: dict[str, str]) -> tuple[str, ...]:
    """Return the prefixes of the settings that belong to plug-ins which the configuration lists."""
    return tuple(
        f"{prefix}{plugin.strip()}."
        for key, prefix in PLUGIN_LISTS.items()
        for plugin in properties.get(key, "").split(",")
        if plugin.strip()
    )

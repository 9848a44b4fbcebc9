"""A connector's configuration: checked once, then read by field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, read_properties
from airflow_provider_mysql_cdc.cdc.config.column_rules import BooleanConverter
from airflow_provider_mysql_cdc.cdc.config.enums import EventContract
from airflow_provider_mysql_cdc.cdc.config.field import Field, Lookup, Problem
from airflow_provider_mysql_cdc.cdc.config.kafka import KafkaRole
from airflow_provider_mysql_cdc.cdc.config.parse_value import source_hosts
from airflow_provider_mysql_cdc.cdc.config.property_families import PropertyFamilies, TopicGroup
from airflow_provider_mysql_cdc.cdc.config.property_names import connect_properties, hide_salt, is_secret, redact
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnRule, RuleKind
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, RegistrySettings, Secret
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import Destination
from airflow_provider_mysql_cdc.cdc.transforms.transform import TransformChain

T = TypeVar("T")

_ABSENT: Any = object()
_TOPIC = re.compile("[a-zA-Z0-9._-]{1,249}")

BUILTIN_DATABASES = frozenset({"mysql", "performance_schema", "sys", "information_schema"})
"""Source: ``BinlogConnectorConfig.BUILT_IN_DB_NAMES`` of Debezium 3.6.1; compared without case."""


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorConfig:
    """Hold a checked configuration.

    Make one with ``from_properties``, ``from_connect_json`` or ``property_sources.load_config``; read it with
    ``cfg[F.NAME]``.

    Args:
        texts: Property text by name, older names replaced, secrets in clear.
        values: Parsed values of the declared properties that were given.
        families: What the families of properties say.
        notes: What a person should know: older names, properties without effect.
        server_uuid: The one server that may answer on a connection; None for any.
    """

    texts: Mapping[str, str]
    values: Mapping[str, Any] = field(compare=False)
    families: PropertyFamilies = field(compare=False)
    notes: tuple[str, ...] = field(compare=False)
    server_uuid: str | None = field(default=None, compare=False)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object], describe_sources: Callable[[Field[Any]], str] | None = None
    ) -> ConnectorConfig:
        """Check properties and return the configuration.

        Args:
            properties: Property values by name, in the names of either Debezium generation.
            describe_sources: Says for a missing property where it was looked for.

        Raises:
            ConfigError: With every problem, not only the first (FAULT-02).
        """
        result = read_properties.read_properties(properties, describe_sources)
        if result.problems:
            raise config_error(result.problems)
        return cls(result.texts, result.values, result.families, tuple(result.notes))

    @classmethod
    def from_connect_json(cls, document: str | Mapping[str, Any]) -> ConnectorConfig:
        """Check a Kafka Connect configuration: ``{"name": .., "config": {..}}``, or as ``connect_properties`` says.

        Raises:
            ConfigError: With every problem, or because the document is not of one of these forms.
        """
        return cls.from_properties(connect_properties(document))

    @staticmethod
    def check(properties: Mapping[str, object]) -> list[Problem]:
        """Return all problems of a configuration; empty when it can be used."""
        return read_properties.read_properties(properties, None).problems

    def __getitem__(self, declared: Field[T]) -> T:
        # Asked for some hundred times a table: a look-up of its own is made for what is derived alone.
        value: T = self.values.get(declared.name, _ABSENT)
        if value is not _ABSENT:
            return value
        return declared.default if declared.derive is None else declared.derive(Lookup(self.values))

    def is_set(self, declared: Field[Any]) -> bool:
        """Say whether the property was given, rather than taken from its default."""
        return declared.name in self.values

    def properties(self) -> dict[str, str]:
        """Return what was given under today's names, **secrets in clear**; ``from_properties`` reads it back."""
        return dict(self.texts)

    def redacted_properties(self) -> dict[str, str]:
        """Return what was given, secrets as ``***``; fit for logs."""
        return {hide_salt(name): redact(name, text) for name, text in sorted(self.texts.items())}

    def __repr__(self) -> str:
        return f"ConnectorConfig({', '.join(f'{n}={v!r}' for n, v in self.redacted_properties().items())})"

    def captures_database(self, database: str) -> bool:
        """Say whether any table of a database can be captured (STRM-12, STRM-14)."""
        if self[F.TABLE_IGNORE_BUILTIN] and database.lower() in BUILTIN_DATABASES:
            return False
        if include := self[F.DATABASE_INCLUDE_LIST]:
            return include.matches(database)
        return not self[F.DATABASE_EXCLUDE_LIST].matches(database)

    def captures(self, table: TableId) -> bool:
        """Say whether a table is captured (STRM-12 to STRM-14)."""
        if not self.captures_database(table.db):
            return False
        if include := self[F.TABLE_INCLUDE_LIST]:
            return include.matches(str(table))
        return not self[F.TABLE_EXCLUDE_LIST].matches(str(table))

    def needs_schema(self, table: TableId) -> bool:
        """Say whether the stream needs a table's structure: it is captured, or holds the signals."""
        return table == self[F.SIGNAL_DATA_COLLECTION] or self.captures(table)

    def needs_database(self, database: str) -> bool:
        """Say whether a table whose structure the stream needs may be in a database."""
        signals = self[F.SIGNAL_DATA_COLLECTION]
        return self.captures_database(database) or (signals is not None and signals.db == database)

    def stores_database_ddl(self, database: str) -> bool:
        """Say whether the history and the schema change topic describe a database (SCH-10)."""
        if self[F.STORE_ONLY_CAPTURED_TABLES_DDL] or self[F.STORE_ONLY_CAPTURED_DATABASES_DDL]:
            return self.captures_database(database)
        return not self[F.TABLE_IGNORE_BUILTIN] or database.lower() not in BUILTIN_DATABASES

    def publishes_database_ddl(self, database: str) -> bool:
        """Say whether the schema change topic describes a database: a captured one only in contract 1.9 (SCH-10).

        Args:
            database: Its name; empty for a statement that belongs to none, such as SET.
        """
        old = self[F.EVENT_CONTRACT] is EventContract.OLD
        return not database or (self.captures_database if old else self.stores_database_ddl)(database)

    def stores_ddl(self, table: TableId) -> bool:
        """Say whether the history and the schema change topic describe a table (SCH-10)."""
        if self[F.STORE_ONLY_CAPTURED_TABLES_DDL]:
            return self.needs_schema(table)
        return table == self[F.SIGNAL_DATA_COLLECTION] or self.stores_database_ddl(table.db)

    def accepts_signals_from(self, channel: str) -> bool:
        """Say whether signals of a channel are carried out; those of Airflow always are."""
        return channel == "airflow" or channel in self[F.SIGNAL_ENABLED_CHANNELS]

    def snapshots_rows(self, table: TableId) -> bool:
        """Say whether the snapshot reads the rows of a captured table (SNAP-49).

        Those of the signal table are signals, which are over: no snapshot of Debezium 3.6.1 reads them. Debezium 1.9.7
        reads them like others.
        """
        if table == self[F.SIGNAL_DATA_COLLECTION] and self[F.EVENT_CONTRACT] is not EventContract.OLD:
            return False
        listed = self[F.SNAPSHOT_INCLUDE_COLLECTION_LIST]
        return not listed or listed.matches(str(table))

    def select_override(self, table: TableId) -> str | None:
        """Return the statement that the snapshot runs in place of reading the whole table (SNAP-50), or None."""
        return self.families.select_overrides.get(str(table))

    def route_topic(self, topic: str) -> Destination:
        """Return where the records of a topic go behind the transforms (TOPIC-05).

        Args:
            topic: The topic's name before them; a topic of events, schema changes, transactions or heartbeats.

        Raises:
            ConfigError: Kafka does not allow the new name, or the topic is one that this provider needs for itself.
        """
        destination = self.families.transforms.route(topic)
        if destination.topic != topic:
            self.require_for_events(destination.topic, topic)
        return destination

    def require_for_events(self, topic: str, source: str) -> None:
        """Check the name of a topic that transforms have chosen.

        Args:
            topic: The name.
            source: The name before them.

        Raises:
            ConfigError: Kafka does not allow the name, or the topic is one that this provider needs for itself.
        """
        what = ""
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            what = "is not a topic name that Kafka allows"
        elif topic in (self.ledger_topic, self.history_topic, self[F.DEAD_LETTER_TOPIC]):
            what = "is not for events: it is the ledger, the schema history or the dead letters"
        if what:
            raise ConfigError(
                f"{F.TRANSFORMS.name} routes to {topic!r}, which {what}",
                where=f"records of topic {source}",
                remedy="correct the replacement, or narrow the regular expression of the transform",
            )

    @property
    def chain(self) -> TransformChain | None:
        """The transforms that are applied to each record; None where there are none, or only renamed topics."""
        return self.families.chain

    def behind_chain(self) -> ConnectorConfig:
        """Return the configuration of the records behind the chain: the converters as they were given."""
        return self if self.chain is None else replace(self, values=self.families.behind_chain)

    @property
    def filters_gtid_sources(self) -> bool:
        """Whether transactions of some servers do not count (STRM-07)."""
        return bool(self[F.GTID_SOURCE_INCLUDES] or self[F.GTID_SOURCE_EXCLUDES])

    def counts_gtid_source(self, uuid: str) -> bool:
        """Say whether transactions of a server count when the place of the stream is searched (STRM-07).

        Args:
            uuid: The server's uuid.
        """
        if include := self[F.GTID_SOURCE_INCLUDES]:
            return include.matches(uuid)
        return not self[F.GTID_SOURCE_EXCLUDES].matches(uuid)

    def writes_rows_of(self, uuid: str) -> bool:
        """Say whether rows of a server's transactions become records.

        Args:
            uuid: The server's uuid.
        """
        return not self[F.GTID_SOURCE_FILTER_DML_EVENTS] or self.counts_gtid_source(uuid)

    def includes_column(self, table: TableId, column: str) -> bool:
        """Say whether a column goes into the values of events (COL-02)."""
        name = f"{table}.{column}"
        if include := self[F.COLUMN_INCLUDE_LIST]:
            return include.matches(name)
        return not self[F.COLUMN_EXCLUDE_LIST].matches(name)

    def column_rules(self, table: TableId, column: str, datatype: str) -> tuple[ColumnRule, ...]:
        """Return the rules for a column, one of a kind, in the order of ``RuleKind``; the first counts (COL-03..12).

        Args:
            table: The table.
            column: The column's name.
            datatype: Its type as in ``INT UNSIGNED``.
        """
        if not self.has_column_rules:
            return ()
        name = f"{table}.{column}"
        rules_by_kind = {
            rule.kind: rule for rule, columns in reversed(self.families.columns.rules) if columns.matches(name)
        }
        by_type = self[F.DATATYPE_PROPAGATE_SOURCE_TYPE].matches(f"{table}.{datatype}")
        if by_type or self[F.COLUMN_PROPAGATE_SOURCE_TYPE].matches(name):
            rules_by_kind[RuleKind.SOURCE_TYPE] = ColumnRule(RuleKind.SOURCE_TYPE)
        return tuple(rules_by_kind[kind] for kind in RuleKind if kind in rules_by_kind)

    @property
    def has_column_rules(self) -> bool:
        """Whether any column may have a rule."""
        propagated = self[F.DATATYPE_PROPAGATE_SOURCE_TYPE] or self[F.COLUMN_PROPAGATE_SOURCE_TYPE]
        return bool(self.families.columns.rules or propagated)

    def is_boolean(self, table: TableId, column: str, datatype: str, length: int | None) -> bool:
        """Say whether a converter makes a column boolean (TYPE-62).

        Args:
            table: The table.
            column: The column's name.
            datatype: Its type as in ``TINYINT UNSIGNED``.
            length: Its display width as declared, or None.
        """
        name = f"{table}.{column}"
        return any(
            isinstance(c, BooleanConverter) and c.selects(name, datatype, length)
            for c in self.families.columns.converters
        )

    def connection_settings(self) -> ConnectionSettings:
        """Return how to reach the MySQL server; another one that answers is refused where it is known which one it is.

        Raises:
            ConfigError: There are several. Which one is asked is for ``operate.source_server`` alone to say.
        """
        servers = self.servers()
        if len(servers) > 1:
            raise ConfigError(
                "one of several servers has to be chosen first",
                where=f"{F.DATABASE_HOSTNAME.name}={self.source_address()}",
                remedy=f"name one server in {F.DATABASE_HOSTNAME.name} for this use",
            )
        return replace(servers[0], server_uuid=self.server_uuid)

    def replica_settings(self) -> ConnectionSettings | None:
        """Return how to reach the replica that a verification reads rows from; None where it reads the source."""
        get = Lookup(self.families.replica)
        if not get[F.DATABASE_HOSTNAME]:
            return None
        ((host, port),) = source_hosts(get[F.DATABASE_HOSTNAME], get[F.DATABASE_PORT])
        return replace(self._settings_of(get, host, port), driver_options=())

    def servers(self) -> tuple[ConnectionSettings, ...]:
        """Return how to reach each server in ``database.hostname``, in order; the first one names the source."""
        hosts = source_hosts(self[F.DATABASE_HOSTNAME], self[F.DATABASE_PORT])
        return tuple(self._settings_of(Lookup(self.values), host, port) for host, port in hosts)

    def source_address(self) -> str:
        """Return ``host:port`` of each server, for messages."""
        return ",".join(server.address() for server in self.servers())

    def _settings_of(self, get: Lookup, host: str, port: int) -> ConnectionSettings:
        return ConnectionSettings(
            host=host,
            port=port,
            user=get[F.DATABASE_USER],
            password=get[F.DATABASE_PASSWORD],
            ssl_mode=get[F.DATABASE_SSL_MODE].value,
            ssl_ca=get[F.DATABASE_SSL_CA],
            ssl_cert=get[F.DATABASE_SSL_CERT],
            ssl_key=get[F.DATABASE_SSL_KEY],
            ssl_key_password=get[F.DATABASE_SSL_KEY_PASSWORD],
            connect_timeout_s=self[F.CONNECT_TIMEOUT_MS] / 1000,
            query_timeout_s=self[F.DATABASE_QUERY_TIMEOUT_MS] / 1000,
            silence_timeout_s=self[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000,
            client_name=self.topic_prefix,
            driver_options=self.families.driver_options,
        )

    def at_server(self, host: str, port: int) -> ConnectorConfig:
        """Return the configuration with one server.

        Args:
            host: Its host.
            port: Its port.
        """
        address = {F.DATABASE_HOSTNAME.name: f"[{host}]" if ":" in host else host, F.DATABASE_PORT.name: str(port)}
        return ConnectorConfig.from_properties(self.properties() | address)

    def of_server(self, server_uuid: str | None) -> ConnectorConfig:
        """Return the configuration whose connections refuse the answer of another server.

        Args:
            server_uuid: The server; None for any.
        """
        return replace(self, server_uuid=server_uuid)

    @property
    def is_ticdc(self) -> bool:
        """Whether records of tables are written in TiCDC's protocol."""
        return F.is_ticdc(Lookup(self.values))

    def is_avro(self, part: F.ConverterPart) -> bool:
        """Say whether keys or values are written as Avro."""
        return F.is_avro(Lookup(self.values), part)

    def registry_settings(self, part: F.ConverterPart) -> RegistrySettings | None:
        """Return how to reach the schema registry of keys or of values; None when they are not Avro."""
        return F.registry_settings(Lookup(self.families.behind_chain or self.values), part)

    def kafka_settings(self, role: KafkaRole | str | None = None) -> dict[str, str | Secret]:
        """Return settings for a Kafka client; ``sink.clients`` alone reveals the secrets among them.

        Args:
            role: Kind of client: ``producer``, ``consumer`` or ``admin``. Settings of other kinds are left out; with
                None they are not, and librdkafka warns of those it passes over.
        """
        settings = kafka.merge_settings(self.families.kafka_settings, None if role is None else KafkaRole(role))
        wrapped = {name: Secret(text) if is_secret(name) else text for name, text in settings.items()}
        return {"bootstrap.servers": self[F.KAFKA_BOOTSTRAP_SERVERS], **wrapped}

    def signal_kafka_settings(self) -> dict[str, str | Secret]:
        """Return settings for the consumer of signals; its cluster may be another than that of the events."""
        settings = kafka.merge_signal_settings(self.families.kafka_settings)
        wrapped = {name: Secret(text) if is_secret(name) else text for name, text in settings.items()}
        return {"bootstrap.servers": self[F.SIGNAL_KAFKA_BOOTSTRAP_SERVERS], **wrapped}

    def topic_creation_settings(self) -> dict[str, str]:
        """Return the settings of ``topic.creation.default.*``, without partitions and replication factor."""
        return dict(self.families.topic_settings)

    def topic_partitions(self, topic: str) -> int:
        """Return the partitions with which a topic of tables is created.

        Args:
            topic: Its name, behind the transforms.
        """
        group = self.topic_group(topic)
        return self[F.TOPIC_CREATION_PARTITIONS] if group is None or group.partitions is None else group.partitions

    def topic_group(self, topic: str) -> TopicGroup | None:
        """Return the group of ``topic.creation.groups`` that a topic is in, or None.

        Args:
            topic: Its name, behind the transforms.
        """
        return next((group for group in self.families.topic_groups if group.matches(topic)), None)

    def server_id(self, writer: int) -> int:
        """Return the replication client id of a writer, 0 to 63.

        Raises:
            ValueError: The writer's number is outside.
        """
        if not 0 <= writer < F.WRITER_IDS:
            raise ValueError(f"writer {writer} is not one of 0 to {F.WRITER_IDS - 1}")
        return self[F.DATABASE_SERVER_ID] + writer

    @property
    def topic_prefix(self) -> str:
        """Return ``topic.prefix``."""
        return self[F.TOPIC_PREFIX]

    @property
    def ledger_topic(self) -> str:
        """Return the name of the ledger topic."""
        return self[F.LEDGER_TOPIC]

    @property
    def history_topic(self) -> str:
        """Return the name of the schema history topic."""
        return self[F.HISTORY_KAFKA_TOPIC]


def config_error(problems: list[Problem], origins: Mapping[str, str] | None = None) -> ConfigError:
    """Return one error for all problems.

    Args:
        problems: The problems, at least one.
        origins: Where properties came from, by name as given, or None.
    """
    origins = origins or {}
    remedy = "Correct the configuration; docs/properties.md explains every property"
    if len(problems) == 1:
        problem = problems[0]
        value_text = "" if problem.value is None else f" (value {problem.short_value()})"
        return ConfigError(
            f"{problem.name}{value_text}: {problem.what}", where=origins.get(problem.name, ""), remedy=problem.fix
        )
    lines = [f"{i}. {p}" + (f" [{origins[p.name]}]" if p.name in origins else "") for i, p in enumerate(problems, 1)]
    why = "".join(f"\n  {line}" for line in lines)
    return ConfigError(f"The configuration has {len(problems)} problems", why=why, remedy=remedy)

"""The property that lists transforms."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config.field import Field, Group

TRANSFORMS: Field[tuple[str, ...]] = Field(
    "transforms",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of Kafka Connect's single message transforms, in their order. Each has `transforms.<name>.type`, one of the "
    "classes in the chapter *Transforms*. They act on the topics of tables, schema changes, transaction metadata, "
    "heartbeats and notifications, not on the schema history, the ledger and dead letters. Those that only rename "
    "topics cost nothing; any others are applied to each record, as Kafka Connect does, by one writer and at some "
    "thousand records a second. Tables that share a topic keep the order of the binlog in each partition; the rows "
    "of a snapshot do so for each table alone. A record that a transform cannot take stops the stream. Scripts are "
    "refused.",
    Group.TOPICS,
    refs=("TOPIC-05", "SNAP-41", "EX-38"),
)
PREDICATES: Field[tuple[str, ...]] = Field(
    "predicates",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of Kafka Connect's predicates. Each has `predicates.<name>.type`, one of the classes in the chapter "
    "*Transforms*. A transform with a `predicate` applies only to records that it selects, or with `negate=true` only "
    "to the others.",
    Group.TOPICS,
)

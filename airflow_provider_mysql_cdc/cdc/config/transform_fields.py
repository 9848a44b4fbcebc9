"""The property that lists transforms."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config.field import Field, Group

TRANSFORMS: Field[tuple[str, ...]] = Field(
    "transforms",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of Kafka Connect's single message transforms, in their order. Each has `transforms.<name>.type`, one of the "
    "classes in the chapter *Transforms*. They act on the topics of tables, schema changes, transaction metadata and "
    "heartbeats, not on the schema history, the ledger and dead letters. Tables that share a topic keep the order of "
    "the binlog in each partition; the rows of a snapshot do so for each table alone. Other classes are "
    "refused.",
    Group.TOPICS,
    refs=("TOPIC-05", "SNAP-41", "EX-38"),
)
PREDICATES: Field[tuple[str, ...]] = Field(
    "predicates",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of Kafka Connect's predicates. Each has `predicates.<name>.type`, always "
    "`org.apache.kafka.connect.transforms.predicates.TopicNameMatches`, and `predicates.<name>.pattern`, which matches "
    "the whole topic name. A transform that renames topics applies only where its `predicate` does, or with "
    "`negate=true` only where it does not. Other classes are refused.",
    Group.TOPICS,
)

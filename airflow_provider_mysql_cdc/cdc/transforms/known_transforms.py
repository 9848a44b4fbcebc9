"""The names of transforms and predicates: one table of those that there are, one of those that are refused."""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.transforms import (
    field_transforms,
    geometry_transforms,
    header_transforms,
    topic_routers,
)
from airflow_provider_mysql_cdc.cdc.transforms.event_router import EventRouter
from airflow_provider_mysql_cdc.cdc.transforms.event_transforms import (
    ExtractChangedRecordState,
    ExtractSchemaToNewRecord,
    PartitionRouting,
    ReadToInsertEvent,
    SchemaChangeEventFilter,
)
from airflow_provider_mysql_cdc.cdc.transforms.header_transforms import HeaderToValue
from airflow_provider_mysql_cdc.cdc.transforms.time_transforms import TimestampConverter, TimezoneConverter
from airflow_provider_mysql_cdc.cdc.transforms.topic_routers import (
    ByLogicalTableRouter,
    HasHeaderKey,
    RecordIsTombstone,
    TopicNameMatches,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import PartTransform, Predicate, Transform
from airflow_provider_mysql_cdc.cdc.transforms.unwrap import ExtractNewRecordState
from airflow_provider_mysql_cdc.cdc.transforms.value_transforms import Cast, MaskField

CONNECT, DEBEZIUM = "org.apache.kafka.connect.transforms.", "io.debezium.transforms."
_PARTS = {"Key": "key", "Value": "value"}


class KnownTransform(NamedTuple):
    """A transform's class, and for one of keys and values the part that it works on."""

    made_by: type[Transform]
    part: str = ""


TRANSFORMS: dict[str, KnownTransform] = {
    **{
        DEBEZIUM + name: KnownTransform(made_by)
        for name, made_by in dict[str, type[Transform]](
            {
                "ExtractNewRecordState": ExtractNewRecordState,
                "outbox.EventRouter": EventRouter,
                "ByLogicalTableRouter": ByLogicalTableRouter,
                "ExtractChangedRecordState": ExtractChangedRecordState,
                "ExtractSchemaToNewRecord": ExtractSchemaToNewRecord,
                "HeaderToValue": HeaderToValue,
                "partitions.PartitionRouting": PartitionRouting,
                "SchemaChangeEventFilter": SchemaChangeEventFilter,
                "TimezoneConverter": TimezoneConverter,
                "SwapGeometryCoordinates": geometry_transforms.SwapGeometryCoordinates,
                "GeometryFormatTransformer": geometry_transforms.GeometryFormatTransformer,
                "VectorToJsonConverter": geometry_transforms.VectorToJsonConverter,
            }
        ).items()
    },
    "io.debezium.connector.mysql.transforms.ReadToInsertEvent": KnownTransform(ReadToInsertEvent),
    **{
        CONNECT + made_by.__name__: KnownTransform(made_by)
        for made_by in (
            topic_routers.Filter,
            topic_routers.RegexRouter,
            topic_routers.TimestampRouter,
            field_transforms.ValueToKey,
            header_transforms.DropHeaders,
            header_transforms.InsertHeader,
        )
    },
    **{
        f"{CONNECT}{made_by.__name__}${suffix}": KnownTransform(made_by, part)
        for made_by in (
            Cast,
            field_transforms.ExtractField,
            field_transforms.Flatten,
            header_transforms.HeaderFrom,
            field_transforms.HoistField,
            field_transforms.InsertField,
            MaskField,
            field_transforms.ReplaceField,
            field_transforms.SetSchemaMetadata,
            TimestampConverter,
        )
        for suffix, part in _PARTS.items()
    },
}
"""Every transform by the name of its class."""

PREDICATES: dict[str, type[Predicate]] = {
    f"{CONNECT}predicates.{made_by.__name__}": made_by
    for made_by in (TopicNameMatches, RecordIsTombstone, HasHeaderKey)
}
"""Every predicate by the name of its class."""

_SCRIPTED = "it is a script in Groovy or JavaScript, which needs a JVM"
REFUSED = {
    DEBEZIUM + "Filter": (
        _SCRIPTED,
        f"Write table.include.list, skipped.operations or snapshot.select.statement.overrides for what it filters, or "
        f"{CONNECT}Filter with a predicate (topic, tombstone or header)",
    ),
    DEBEZIUM + "ContentBasedRouter": (
        _SCRIPTED,
        f"Route by topic with {CONNECT}RegexRouter, or by a column with {DEBEZIUM}ExtractNewRecordState and "
        "route.by.field",
    ),
    DEBEZIUM + "tracing.ActivateTracingSpan": ("no trace is written here", "Remove it from transforms"),
    DEBEZIUM + "openlineage.OpenLineage": (
        "Airflow itself reports lineage for these tasks",
        "Remove it from transforms, and install apache-airflow-providers-openlineage",
    ),
}
"""Transforms that are refused by name: why, and what to write instead."""


def create_transform(kind: str, options: dict[str, object]) -> Transform:
    """Return a transform.

    Args:
        kind: The name of its class.
        options: Values of its options, defaults included.

    Raises:
        OptionError: Options do not go together.
    """
    known = TRANSFORMS[kind]
    transform = known.made_by(options)
    if isinstance(transform, PartTransform):
        transform.part = known.part
    return transform

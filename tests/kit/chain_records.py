"""Transforms with some options, and small records and change events for them."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.transforms.known_transforms import TRANSFORMS, create_transform
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import OPTIONAL_STRING, STRING, RecordSchema, struct_of
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainRecord, Transform, read_defaults


def made(kind: str, **texts: str) -> Transform:
    """Return a transform; two underscores in an option's name stand for a dot."""
    options = TRANSFORMS[kind].made_by.OPTIONS
    given = {name.replace("__", "."): text for name, text in texts.items()}
    return create_transform(
        kind, read_defaults(options, {name: options[name].parse(text) for name, text in given.items()})
    )


def record(schema: RecordSchema | None, value: Any, **more: Any) -> ChainRecord:
    return ChainRecord("t", None, None, None, schema, value, **more)


def event(row: RecordSchema, op: str = "c", **images: Any) -> ChainRecord:
    """Return a change event."""
    source = struct_of(("table", OPTIONAL_STRING))
    schema = struct_of(("before", row), ("after", row), ("source", source), ("op", STRING), name="x.Envelope")
    value = {"before": None, "after": None, "source": {"table": "t"}, "op": op, **images}
    return record(schema, value)

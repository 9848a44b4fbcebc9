"""Kafka Connect's transforms of topic names, and ``Filter``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.date_format import JavaDateFormat
from airflow_provider_mysql_cdc.cdc.transforms.logical_router import rewrite_of
from airflow_provider_mysql_cdc.cdc.transforms.option_values import expression
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import TransformFault
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, Transform


class RegexRouter(Transform):
    """Rename topics; schemas and keys stay."""

    DOC = "renames topics; schemas and keys stay"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "regex": Option(expression, "matches the whole topic name", required=True),
        "replacement": Option(str, "the new name; `$1` is the first group", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.rewrite = rewrite_of(options, "regex", "replacement")

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        topic = self.rewrite(record.topic)
        if topic is not None:
            record.topic = topic
        return record


class TimestampRouter(Transform):
    """Name topics after the record's timestamp, which only ``EventRouter`` gives to records."""

    DOC = "names topics after the record's timestamp, which only `EventRouter` gives to records"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "topic.format": Option(str, "the name; default `${topic}-${timestamp}`", "${topic}-${timestamp}"),
        "timestamp.format": Option(
            JavaDateFormat, "format of the timestamp; default `yyyyMMdd`", JavaDateFormat("yyyyMMdd")
        ),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._topic: str = options["topic.format"]
        self._format: JavaDateFormat = options["timestamp.format"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.timestamp is None:
            raise TransformFault("Timestamp missing on record")
        named = self._topic.replace("${topic}", record.topic)
        record.topic = named.replace("${timestamp}", self._format.format(record.timestamp))
        return record


class Filter(Transform):
    """Drop the records that its predicate selects."""

    DOC = "drops the records that its predicate selects"

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def apply(self, record: ChainRecord) -> None:
        """Apply the transform; see ``Transform``."""
        return None

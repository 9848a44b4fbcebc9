"""Kafka Connect's predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.option_values import required_expression, required_text
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, Predicate


class TopicNameMatches(Predicate):
    """Select records by the whole name of their topic."""

    DOC = "selects records by the name of their topic"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "pattern": Option(required_expression, "matches the whole topic name", required=True)
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.pattern: Expression = options["pattern"]
        self._known: dict[str, bool] = {}

    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""
        known = self._known.get(record.topic)
        if known is None:
            if len(self._known) > 10_000:
                self._known.clear()
            known = self._known[record.topic] = self.pattern.fullmatch(record.topic) is not None
        return known


class RecordIsTombstone(Predicate):
    """Select records without a value."""

    DOC = "selects tombstones"

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""
        return record.value is None


class HasHeaderKey(Predicate):
    """Select records that have a header."""

    DOC = "selects records that have a header"
    OPTIONS: ClassVar[Mapping[str, Option]] = {"name": Option(required_text, "the header's name", required=True)}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name: str = options["name"]

    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""
        return record.header(self._name) is not None

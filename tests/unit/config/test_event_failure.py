"""Properties of rows that cannot be represented as they are."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

BASE = {
    "database.hostname": "h",
    "database.user": "u",
    "database.password": "p",
    "topic.prefix": "cap",
    "kafka.bootstrap.servers": "k:9092",
}


def problems(**more: Any) -> list[str]:
    found = ConnectorConfig.check({**BASE, **{name.replace("__", "."): value for name, value in more.items()}})
    return [p.name for p in found]


def config(**more: Any) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **{k.replace("__", "."): v for k, v in more.items()}})


@pytest.mark.req("STRM-23", "CFG-28")
@for_each(("value", "mode"), [("warn", "warn"), ("SKIP", "skip"), ("ignore", "skip"), ("fail", "fail")])
def test_both_generations_name_the_mode(value: str, mode: str) -> None:
    for name in ("event.processing.failure.handling.mode", "event.deserialization.failure.handling.mode"):
        cfg = ConnectorConfig.from_properties({**BASE, name: value})
        assert cfg[F.EVENT_PROCESSING_FAILURE_HANDLING_MODE] == mode


def test_the_dead_letter_topic_is_a_topic_of_its_own() -> None:
    assert problems(errors__deadletterqueue__topic__name="dead.cap") == []
    assert problems(errors__deadletterqueue__topic__name="") == []
    assert problems(errors__deadletterqueue__topic__name="not a topic") == ["errors.deadletterqueue.topic.name"]
    for taken in ("cap", "ledger.cap", "schemahistory.cap"):
        assert problems(errors__deadletterqueue__topic__name=taken), taken
    assert problems(errors__deadletterqueue__context__headers__enable="true") == []
    assert problems(errors__deadletterqueue__context__headers__enable="false")

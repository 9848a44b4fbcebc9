"""What is asked of the tombstones of tables that share a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.verify import compared_topics
from airflow_provider_mysql_cdc.cdc.verify.compared_topics import ComparedTopics
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import compared_table

pytestmark = pytest.mark.quick

NAMES = ((("field", "one"),), (("field", "two"),), ())


@for_each(
    ("names", "told"),
    [
        (NAMES[2:], [True]),
        (NAMES[:2], [True, True]),
        (NAMES, [True, True, False]),
        ((NAMES[0], NAMES[0], NAMES[1]), [False, False, True]),
    ],
)
def test_a_delete_is_asked_for_its_tombstone_if_that_tells_its_table(
    names: Sequence[Any], told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = TableRecords("CREATE TABLE t (id INT NOT NULL PRIMARY KEY)", {})
    monkeypatch.setattr(compared_topics, "make_admin", lambda settings: None)
    made = compared_table(records.cfg, 0, records.table)
    tables = [replace(made, number=number, name_in_key=name) for number, name in enumerate(names)]
    job = SimpleNamespace(latest=lambda: SimpleNamespace(topics={}))
    context: Any = SimpleNamespace(cfg=records.cfg, job=job)
    rules = ComparedTopics(context).history_rules(tables)
    assert [rules[number].tombstones for number in range(len(tables))] == told

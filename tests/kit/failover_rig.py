"""A stream whose connection is led from one server of a pair to the other."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest
from kit.records import compacted, payload
from kit.replication import Pair
from kit.sql import execute, rows


def insert(root: Any, db: str, *ids: int) -> None:
    """Insert rows, a transaction each."""
    execute(root, *(f"INSERT INTO `{db}`.t (id, v) VALUES ({i}, 'row {i}')" for i in ids))


def follow(pipeline: Pipeline, pair: Pair) -> None:
    """Let the stream's connection lead to the primary."""
    pipeline.properties.update(pair.primary.server.properties())


def committed(pipeline: Pipeline) -> BinlogOffset:
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    return stored.committed


def assert_exact(pipeline: Pipeline, root: Any, db: str, table: str = "t") -> None:
    """Compare the topic with the table, and each event with each other."""
    records = pipeline.records(table)
    have = {r["id"]: r["v"] for r in compacted(records).values() if r is not None}
    assert have == dict(rows(root, f"SELECT id, v FROM `{db}`.`{table}`"))
    events = [payload(r.value) for r in records if r.value]
    ids = Counter((e["op"], e["before"] and e["before"]["id"], e["after"] and e["after"]["id"]) for e in events)
    assert not [event for event, count in ids.items() if count > 1 and event[0] in "crd"]


def refused(pipeline: Pipeline) -> ServerChangedError:
    """Return the error of a drain that is refused before anything is written."""

    def written() -> tuple[Any, ...]:
        stored = pipeline.store.load()  # which may note how far the ledger goes
        assert stored is not None
        return stored.committed, stored.pending, stored.history, len(pipeline.records("t"))

    before = written()
    with pytest.raises(ServerChangedError, match="cannot go on at the one that answers") as caught:
        pipeline.drain()
    assert written() == before
    return caught.value


def carry_out(error: ServerChangedError, pipeline: Pipeline) -> None:
    """Do what a refusal advises: reset to the set that it names, then verify and repair."""
    match = re.search(r"mysql_cdc_reset_offset with offset=(\S+), then trigger mysql_cdc_verify", error.remedy)
    assert match is not None, error.remedy
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=match[1])
    pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert pipeline.verify().equal

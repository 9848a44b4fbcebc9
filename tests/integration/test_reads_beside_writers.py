"""What a run reads of the binlog beside its writers, which keep their dumps from batch to batch, ends none of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset, end_of_binlog
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.drain import structure_check
from airflow_provider_mysql_cdc.cdc.drain.failover import failover, server_transactions
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import position_of_gtids
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot.recovery import require_no_ddl


def statements_of_tables(pipeline: Pipeline, root: Any, start: BinlogOffset) -> None:
    assert structure_check._touched_since(pipeline.cfg, start, current_offset(root), 0) == frozenset()


def place_of_gtids(pipeline: Pipeline, root: Any, start: BinlogOffset) -> None:
    with connect(pipeline.cfg.connection_settings()) as conn:
        end = end_of_binlog(conn, pipeline.cfg.connection_settings())
        assert start.gtids is not None
        position_of_gtids(pipeline.cfg, conn, end, GtidSet.parse(start.gtids))


def place_on_another_server(pipeline: Pipeline, root: Any, start: BinlogOffset) -> None:
    assert start.gtids is not None
    failover._search(pipeline.cfg, root, GtidSet.parse(start.gtids), GtidSet.parse(""), "")


def structures_of_tables(pipeline: Pipeline, root: Any, start: BinlogOffset) -> None:
    require_no_ddl(pipeline.cfg, start, current_offset(root))


def time_of_a_transaction(pipeline: Pipeline, root: Any, start: BinlogOffset) -> None:
    gtid = str(current_offset(root).gtids).rpartition(":")[0].rpartition(",")[2].strip()
    last = int(str(current_offset(root).gtids).rpartition("-")[2])
    server_transactions.compare_transaction(pipeline.cfg, root, f"{gtid}:{last}@1")


@pytest.mark.req("STRM-02")
@pytest.mark.parametrize(
    "read_beside",
    [statements_of_tables, place_of_gtids, place_on_another_server, structures_of_tables, time_of_a_transaction],
)
@pytest.mark.exhaustive(but="place_of_gtids|structures")
def test_a_writer_s_dump_lives_on(
    pipeline: Pipeline, root: Any, database: str, read_beside: Callable[[Pipeline, Any, BinlogOffset], None]
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    start = current_offset(root)
    settings = pipeline.cfg.connection_settings()
    with open_stream(settings, start, server_id=pipeline.cfg.server_id(0), silence_timeout_s=20) as dump:
        execute(root, f"INSERT INTO `{database}`.t VALUES (1)")
        read_beside(pipeline, root, start)
        execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
        rows = 0
        for event in dump.events(current_offset(root)):
            rows += event.type in c.ROW_EVENT_KINDS
        assert rows >= 2

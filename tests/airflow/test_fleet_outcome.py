"""What a fleet's task says of its streams."""

from __future__ import annotations

import json
import logging

import pytest

from airflow_provider_mysql_cdc.cdc.errors import NoOffsetError, SourceConnectionError, SourcePrivilegeError
from airflow_provider_mysql_cdc.operators.fleet_outcome import (
    DRAINED,
    FAILED,
    GAVE_WAY,
    IDLE,
    StreamOutcome,
    fleet_error,
    fleet_result,
    fleet_summary,
    outcome_table,
)
from airflow_provider_mysql_cdc.operators.fleet_run import StreamLog

OFFSET = {"file": "binlog.000002", "pos": 157}
ONE = StreamOutcome("eu", "conn_eu", DRAINED, {"offset": OFFSET, "counts": {"all.orders": 3}, "batches": 1})
TWO = StreamOutcome("us", "conn_us", DRAINED, {"offset": OFFSET, "counts": {"all.orders": 4, "us.x": 1}, "batches": 1})
QUIET = StreamOutcome("asia", "conn_asia", IDLE, {"offset": OFFSET, "counts": {}, "reason": "nothing new since x:1"})
BUSY = StreamOutcome("old", "conn_old", GAVE_WAY, {"counts": {}, "reason": "another run is active"})
DEAD = StreamOutcome("dead", "conn_dead", FAILED, error=SourceConnectionError("gone", where="db:1", remedy="start it"))
REFUSED = StreamOutcome(
    "refused", "conn_refused", FAILED, error=SourcePrivilegeError("a grant is missing", why="1227", remedy="GRANT it")
)


def test_the_result_has_the_counts_of_each_stream_also_where_they_share_a_topic() -> None:
    result = fleet_result([ONE, TWO, QUIET])
    assert result["complete"] is True
    assert result["counts"] == {"all.orders": 7, "us.x": 1}
    assert {name: stream["records"] for name, stream in result["streams"].items()} == {"eu": 3, "us": 5, "asia": 0}
    assert fleet_result([ONE, DEAD])["complete"] is False
    assert TWO.to_json() == {
        "stream": "us",
        "conn_id": "conn_us",
        "state": "drained",
        "offset": OFFSET,
        "counts": {"all.orders": 4, "us.x": 1},
        "batches": 1,
    }
    assert DEAD.to_json()["error"]["type"] == "SourceConnectionError"


def test_the_table_has_a_line_for_each_stream_and_failures_at_its_end() -> None:
    lines = outcome_table([DEAD, TWO, QUIET, ONE, BUSY])
    assert [line.split()[0] for line in lines] == ["asia", "eu", "old", "us", "dead"]
    assert "Nothing was written: nothing new since x:1." in lines[0]
    assert "5 records in 1 batch" in lines[3]
    assert lines[4].split(maxsplit=2)[2].startswith("SourceConnectionError: gone [db:1].")
    assert fleet_summary([DEAD, TWO, QUIET, ONE, BUSY]) == (
        "5 streams: 2 drained, 1 nothing new, 1 gave way, 1 failed. 8 records."
    )


def test_the_error_lists_each_failed_stream_with_its_remedy_and_whether_a_retry_helps() -> None:
    from airflow_provider_mysql_cdc.operators.task_error import (
        TaskFailedError,
        TaskRetryError,
        airflow_error,
        short_text,
    )

    assert fleet_error([ONE, QUIET, BUSY]) is None
    error = fleet_error([ONE, DEAD, TWO, REFUSED])
    assert error is not None
    raised = airflow_error(error)
    assert isinstance(raised, TaskRetryError), "a retry helps one of them"
    for text in (short_text(error), str(raised)):
        assert "2 of 4 streams were not drained" in text
        assert "dead: SourceConnectionError: gone [db:1]. What to do: start it. A retry can help." in text
        assert "refused: SourcePrivilegeError: a grant is missing. Why: 1227. What to do: GRANT it." in text
    assert short_text(error).splitlines()[2].endswith("A retry will not help.")
    only_refused = fleet_error([ONE, REFUSED])
    assert only_refused is not None and isinstance(airflow_error(only_refused), TaskFailedError)


def test_many_failures_are_all_there() -> None:
    from airflow_provider_mysql_cdc.operators.task_error import short_text

    failed = [
        StreamOutcome(f"shard_{n}", "c", FAILED, error=NoOffsetError("none", where=f"{n}", remedy="snapshot"))
        for n in range(90)
    ]
    error = fleet_error(failed)
    assert error is not None
    assert [line.split(":")[0] for line in short_text(error).splitlines()[1:]] == [f"shard_{n}" for n in range(90)]


def test_an_error_that_many_streams_have_in_common_is_there_once() -> None:
    from airflow_provider_mysql_cdc.operators.task_error import short_text

    gone = SourceConnectionError("gone", where="db:1", remedy="start it")
    failed = [StreamOutcome(f"shard_{n}", "c", FAILED, error=gone) for n in range(200)]
    error = fleet_error([REFUSED, *failed, ONE])
    assert error is not None
    first, refused, common = short_text(error).splitlines()
    assert "201 of 202 streams" in first and refused.startswith("refused: SourcePrivilegeError")
    assert common.startswith("shard_0, shard_1, ") and ", shard_9 and 190 more: SourceConnectionError: gone" in common
    assert len(outcome_table(failed)) == 200


def test_a_deferred_task_keeps_plain_json_of_the_streams_that_are_not_in_the_job() -> None:
    assert QUIET.remembered() == {"state": "nothing new", "reason": "nothing new since x:1", "error": None}
    assert json.loads(json.dumps(DEAD.remembered()))["error"]["type"] == "SourceConnectionError"


def test_each_line_of_a_stream_begins_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = StreamLog(logging.getLogger("fleet"), "shop%s")
    log.info("moved to %s", "x:1")
    log.warning("100 % there")
    assert [record.getMessage() for record in caplog.records] == ["shop%s: moved to x:1", "shop%s: 100 % there"]

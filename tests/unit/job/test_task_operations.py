"""Operations of tasks: the texts of requests and replies, and that both sides read what the other one wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from kit.cases import for_each
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.drain import drain_operations as drain
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import BatchRequest, NextBatch, RefusedSchema, WriterReport
from airflow_provider_mysql_cdc.cdc.drain.unwritten_rows import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.incremental import window_operations as window
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    AssignedKeyRange,
    NextKeyRange,
    PlanReply,
    RangeDone,
    RangeReadOptions,
    RangeReturned,
    ReadyReply,
    WindowStart,
)
from airflow_provider_mysql_cdc.cdc.job import shared_operations as shared
from airflow_provider_mysql_cdc.cdc.job.shared_operations import (
    PropertiesKey,
    SchemaIdRequest,
    SchemaText,
    SchemaTextRequest,
)
from airflow_provider_mysql_cdc.cdc.job.task_barrier import Arrival, BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.registry_settings import SchemaId
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_operations as snapshot
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import (
    AssignedChunk,
    ChunkRows,
    LogLine,
    NextChunk,
    OpenedView,
    ReopenView,
    ViewReply,
)

pytestmark = pytest.mark.quick

CHUNK = SnapshotChunk(TableId("d", "t"), 0)
RANGE = KeyRange(TableId("d", "t"), 0, 0, ("id",), ("SIGNED",))
OPTIONS = RangeReadOptions("blocking", "v > 1", first_table=True, last_table=False, cut_by_key=True, initial=True)
OPTION_MEMBERS = {
    "condition": "v > 1",
    "kind": "blocking",
    "by_key": True,
    "first": True,
    "last": False,
    "initial": True,
}
PLACE = {"list": "x", "order": 0}
VIEW_AT = {"offset": END.to_json(), "ts_ms": 7}
HELD = {"tables": [["d", "t"]], "offset": END.to_json(), "row": None, "server": "s"}
AT_A_ROW = {"tables": [], "offset": None, "row": "r", "server": "s"}
UNWRITTEN = UnwrittenRows({TableId("d", "t"): {b'{"id":"\xff"}': 2}}, {TableId("d", "u")})
UNWRITTEN_MEMBERS = {"keys": [["d", "t", {'{"id":"ÿ"}': 2}]], "tables": [["d", "u"]]}
SCHEMA = {"part": "key", "subject": "t-key", "text": "{}", "about": "table d.t"}
READY, OPENED = snapshot.READY.operation, snapshot.OPENED.operation
AGAIN = snapshot.READY.named("again1").operation

CALLS: list[tuple[TaskOperation[Any, Any], Any, Mapping[str, Any], Any, Mapping[str, Any]]] = [
    (shared.PROPERTIES_KEY, EMPTY, {"op": "key"}, PropertiesKey("k", "u-1"), {"key": "k", "server": "u-1"}),
    (
        shared.SCHEMA_ID,
        SchemaIdRequest("key", "t-key", "{}", "table d.t"),
        {"op": "schema", **SCHEMA},
        SchemaId(7, "g"),
        {"id": 7, "guid": "g"},
    ),
    (
        drain.NEXT_BATCH,
        BatchRequest(6),
        {"op": "next-batch", "done": 6},
        NextBatch(7, plan(7), "run", 2.5),
        {"epoch": 7, "plan": plan(7).to_json(), "run_id": "run", "heartbeat_due_s": 2.5},
    ),
    (
        drain.NEXT_BATCH,
        BatchRequest(0),
        {"op": "next-batch", "done": 0},
        NextBatch(1),
        {"epoch": 1, "plan": None, "run_id": "", "heartbeat_due_s": 0},
    ),
    (
        shared.SCHEMA_TEXT,
        SchemaTextRequest("value", "7"),
        {"op": "schema-text", "part": "value", "id": "7"},
        SchemaText("{}"),
        {"text": "{}"},
    ),
    (
        shared.SCHEMA_TEXT,
        SchemaTextRequest("key", "g"),
        {"op": "schema-text", "part": "key", "id": "g"},
        SchemaText(None),
        {"text": None},
    ),
    (READY, Arrival("ready"), {"op": "ready", "stage": "ready"}, EMPTY, {}),
    (AGAIN, Arrival("again1"), {"op": "ready", "stage": "again1"}, EMPTY, {}),
    (OPENED, Arrival("opened"), {"op": "opened", "stage": "opened"}, ViewReply(OpenedView(END, 7)), VIEW_AT),
    (OPENED, Arrival("opened"), {"op": "opened", "stage": "opened"}, ViewReply(), {"over": True}),
    (
        OPENED,
        Arrival("opened1"),
        {"op": "opened", "stage": "opened1"},
        ViewReply(reopen=ReopenView("again2", "opened2")),
        {"again": "again2", "opened": "opened2"},
    ),
    (snapshot.HELD.operation, Arrival("held"), {"op": "held", "stage": "held"}, EMPTY, {}),
    (snapshot.NOTE, LogLine("a"), {"op": "note", "once": "a"}, EMPTY, {}),
    (snapshot.NEXT_CHUNK, EMPTY, {"op": "next"}, NextChunk(), {"chunk": None}),
    (
        snapshot.NEXT_CHUNK,
        EMPTY,
        {"op": "next"},
        NextChunk(AssignedChunk(CHUNK, True, False, PLACE)),
        {"chunk": CHUNK.to_json(), "first": True, "final": False, "place": PLACE},
    ),
    (snapshot.CHUNK_PROGRESS, ChunkRows("d.t/0", 5), {"op": "progress", "chunk": "d.t/0", "rows": 5}, EMPTY, {}),
    (snapshot.CHUNK_DONE, ChunkRows("d.t/0", 9), {"op": "done", "chunk": "d.t/0", "rows": 9}, EMPTY, {}),
    (drain.PROGRESS, WriterReport("b.1:4", 3), {"op": "progress", "at": "b.1:4", "records": 3}, EMPTY, {}),
    (
        drain.PROGRESS,
        WriterReport("b.1:4", 3, heartbeat=True),
        {"op": "progress", "at": "b.1:4", "records": 3, "heartbeat": True},
        EMPTY,
        {},
    ),
    (
        drain.PROGRESS,
        WriterReport("b.1:4", 3, note="a", once="b"),
        {"op": "progress", "at": "b.1:4", "records": 3, "note": "a", "once": "b"},
        EMPTY,
        {},
    ),
    (
        window.READY.operation,
        Arrival("ready"),
        {"op": "ready", "stage": "ready"},
        ReadyReply(WindowStart((TableId("d", "t"),), END, None, "s")),
        HELD,
    ),
    (
        window.READY.operation,
        Arrival("ready"),
        {"op": "ready", "stage": "ready"},
        ReadyReply(WindowStart((), None, "r", "s")),
        AT_A_ROW,
    ),
    (window.READY.operation, Arrival("ready"), {"op": "ready", "stage": "ready"}, ReadyReply(), {"over": True}),
    (
        window.OPENED.operation,
        Arrival("opened"),
        {"op": "opened", "stage": "opened"},
        PlanReply(plan()),
        {"plan": plan().to_json()},
    ),
    (window.ROWS_UNWRITTEN, UNWRITTEN, {"op": "unwritten", **UNWRITTEN_MEMBERS}, EMPTY, {}),
    (
        window.DRAINED.operation,
        Arrival("drained"),
        {"op": "drained", "stage": "drained"},
        UNWRITTEN,
        UNWRITTEN_MEMBERS,
    ),
    (window.NEXT_RANGE, EMPTY, {"op": "next"}, NextKeyRange(), {"stretch": None}),
    (
        window.NEXT_RANGE,
        EMPTY,
        {"op": "next"},
        NextKeyRange(AssignedKeyRange(RANGE, OPTIONS)),
        {"stretch": RANGE.to_json(), **OPTION_MEMBERS},
    ),
    (
        window.RANGE_DONE,
        RangeDone(DoneKeyRange(RANGE, 5, 1)),
        {"op": "done", "done": DoneKeyRange(RANGE, 5, 1).to_json()},
        EMPTY,
        {},
    ),
    (
        drain.SCHEMA_REFUSED,
        RefusedSchema(END, SchemaError("no", where="table d.t", why="b", remedy="c")),
        {
            "op": "schema_refused",
            "before": END.to_json(),
            "error": {
                "type": "SchemaError",
                "what": "no",
                "where": "table d.t",
                "why": "b",
                "remedy": "c",
                "retriable": False,
            },
        },
        EMPTY,
        {},
    ),
    (
        window.RANGE_RETURNED,
        RangeReturned(RANGE, "gone", permanent=True),
        {"op": "back", "stretch": RANGE.to_json(), "reason": "gone", "hopeless": True},
        EMPTY,
        {},
    ),
]


@for_each(("operation", "request_", "request_members", "reply", "reply_members"), CALLS)
def test_each_side_reads_what_the_other_one_wrote(
    operation: TaskOperation[Any, Any],
    request_: Any,
    request_members: Mapping[str, Any],
    reply: Any,
    reply_members: Mapping[str, Any],
) -> None:
    assert {"op": operation.name, **request_.to_json()} == request_members
    received: list[Any] = []

    def answer(task: int, given: Any) -> Any:
        received.append((task, given))
        return reply

    handler = operation.handled_by(answer)
    wire = json.loads(json.dumps(handler.reply(3, json.loads(json.dumps(request_members)))))
    assert (handler.operation, wire) == (operation.name, reply_members)
    assert received == [(3, request_)] and operation.reply.from_json(wire) == reply


def test_every_operation_has_its_text_here() -> None:
    declared = [
        getattr(value, "operation", value)
        for module in (shared, snapshot, drain, window)
        for value in vars(module).values()
        if isinstance(value, TaskOperation | BarrierPoint)
    ]
    assert [o for o in declared if o not in [operation for operation, *_ in CALLS]] == []

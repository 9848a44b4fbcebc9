"""Text that comes from outside: DDL, configurations, records read back.

Whatever it is: nothing outside the error tree is raised, and nothing takes longer than two seconds of CPU time. How
many examples are tried is the hypothesis profile's matter.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
from airflow_provider_mysql_cdc.cdc.config import undeclared_properties as known
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.config.read_properties import ALIASES
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl, leading_words
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    DdlParseError,
    SchemaError,
    StoredVersionError,
    from_json,
)
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.stored_record import parse_json, versioned
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import replay
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of
from airflow_provider_mysql_cdc.spark.errors import ERROR_MARK, named_error

pytestmark = pytest.mark.quick

_PROFILE = settings.default.max_examples if settings.default else 100
# A profile says how many; without one a few, so that the quick tests stay quick.
FUZZ = settings(
    max_examples=30 if _PROFILE == 100 else _PROFILE, deadline=None, suppress_health_check=list(HealthCheck)
)
CORPUS = (Path(__file__).parents[1] / "integration" / "ddl_corpus.sql").read_text(encoding="utf-8")
STATEMENTS = [s.strip() for s in re.sub(r"(?m)^-- .*$", "", CORPUS).split(";\n") if s.strip()]
PIECES = [
    "(", ")", ",", ".", ";", "-", "+", "*/", "/*", "/*!50000 ", "--\n", "`", "'", '"', "``", "0x", "0xF", "b'1'",
    "9" * 5000,
    "0x" + "F" * 5000, "1e9", "1.", "@", "@@x", "\x00", "\ud800", "\u00e9", "\u0661", "TABLE", "COLUMN", "DEFAULT",
    "NULL", "FIRST",
    "AFTER a", "KEY", "UNIQUE", "CHECK", "REFERENCES t(a)", "ENUM('a')", "SET", "DATE '1'", "_utf8mb4 'x'",
    "CHARSET utf8mb4",
    "COLLATE", "GENERATED ALWAYS AS (1)", "PARTITION BY", "LIKE t", "RENAME TO t", "CONVERT TO CHARACTER SET latin1",
    "ADD",
    "DROP", "MODIFY", "CHANGE", "INT", "BIT(9)", "VARCHAR(3)", "- - 1", "CURRENT_TIMESTAMP(", "IF NOT EXISTS",
    "USE d", "AS",
]  # fmt: skip


@contextmanager
def two_seconds(times: int = 1) -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < 2 * times


def tolerated(work: Callable[[], object], *errors: type[Exception]) -> bool:
    """Do something; return whether it ended without one of the named errors, and let every other one through."""
    named = errors or (CdcError,)
    with two_seconds():
        try:
            work()
        except named:
            return False
    return True


# DDL


def tables() -> SchemaState:
    state = SchemaState()
    for sql in (
        "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(9) DEFAULT 'x', c TIMESTAMP, KEY k (b), UNIQUE u (a, b))",
        "CREATE TABLE s (a INT, d ENUM('x', 'y'), e BIT(3) DEFAULT b'1')",
    ):
        state = apply_ddl(state, sql, DdlContext("d")).state
    return state


KNOWN = tables()
TOKEN = re.compile(r"\s+|\w+|.", re.DOTALL)


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Draw a statement of the corpus, changed at some places, or pieces of several."""
    parts = TOKEN.findall(draw(st.sampled_from(STATEMENTS)))
    if draw(st.booleans()):
        other = TOKEN.findall(draw(st.sampled_from(STATEMENTS)))
        cut, at = draw(st.integers(0, len(parts))), draw(st.integers(0, len(other)))
        parts = parts[:cut] + other[at:]
    for _ in range(draw(st.integers(0, 4))):
        i, j = sorted((draw(st.integers(0, len(parts))), draw(st.integers(0, len(parts)))))
        change = draw(st.sampled_from(["put", "put", "cut", "twice", "text"]))
        if change == "put":
            parts[i:i] = [" ", draw(st.sampled_from(PIECES)), " "]
        elif change == "text":
            parts[i:i] = [draw(st.text(max_size=8))]
        elif change == "cut":
            parts[i : min(j, i + 5)] = []
        else:
            parts[i:i] = parts[i:j][:40]
    return "".join(parts)


contexts = st.builds(
    DdlContext,
    st.sampled_from(["", "d"]),
    st.sampled_from([0, 1, 4, 0x100000, 0x100005]),
    st.none(),
    st.sampled_from([None, 8, 45, 255, 99_999]),
    st.integers(0, 2),
    st.sampled_from([None, 45, 255, 8]),
    st.booleans(),
)


@FUZZ
@given(st.one_of(statements(), st.lists(st.sampled_from(PIECES)).map(" ".join), st.text()), contexts)
def test_ddl_is_applied_or_not_understood(sql: str, context: DdlContext) -> None:
    tolerated(lambda: apply_ddl(KNOWN, sql, context), DdlParseError)
    tolerated(lambda: apply_ddl(KNOWN, sql, context, lambda table: table.table == "t"), DdlParseError)
    with two_seconds():
        classify_ddl(sql, context, lambda table: True)
        leading_words(sql, context.sql_mode)


COLUMNS = 10_000
HUGE = {
    "nested groups": "CREATE TABLE x (a INT, CHECK (" + "(" * 5_000 + "a" + ")" * 5_000 + "))",
    "open groups": "CREATE TABLE x (a INT CHECK " + "(" * 100_000,
    "signs": "CREATE TABLE x (a INT DEFAULT " + "-" * 5_000 + "1)",
    "introducers": "CREATE TABLE x (a DATE DEFAULT " + "DATE " * 5_000 + "'2020-01-01')",
    "a list of 1 MB": "CREATE TABLE x (a INT, CHECK (a IN (" + "123456," * 150_000 + "1)))",
    "a list of 1 MB elsewhere": "DELETE FROM t WHERE a IN (" + "123456," * 150_000 + "1)",
    "a program of 1 MB": "CREATE PROCEDURE p() BEGIN " + "SELECT 1; " * 100_000 + "END",
    "columns": "CREATE TABLE x (" + ",".join(f"c{i} INT DEFAULT {i}" for i in range(COLUMNS)) + ", PRIMARY KEY (c9))",
    "added columns": "ALTER TABLE t " + ",".join(f"ADD c{i} INT" for i in range(COLUMNS)),
    "a number": "CREATE TABLE x (a VARCHAR(" + "9" * 1_000_000 + "))",
    "hex digits": "CREATE TABLE x (a INT DEFAULT 0x" + "F" * 1_000_000 + ")",
}


@for_each("name", HUGE)
def test_huge_statements_end_in_time(name: str) -> None:
    context = DdlContext("d", explicit_defaults_for_timestamp=False)
    # Two seconds of a core of one's own; on a shared one the same work takes up to three times as long.
    with two_seconds(3), contextlib.suppress(DdlParseError):
        apply_ddl(KNOWN, HUGE[name], context)
    with two_seconds(3):
        classify_ddl(HUGE[name], context, lambda table: True)


def test_a_statement_longer_than_any_table_is_refused_by_name() -> None:
    with pytest.raises(DdlParseError, match="too long"):
        apply_ddl(KNOWN, "CREATE TABLE x (a INT COMMENT '" + "x" * 2**24 + "')", DdlContext("d"))


# configuration

BASE: dict[str, object] = {
    "topic.prefix": "p",
    "database.hostname": "h",
    "database.user": "u",
    "kafka.bootstrap.servers": "k:1",
}
T = TableId("shop", "orders")
NAMES = sorted({*F.BY_NAME, *ALIASES, *known.NO_EFFECT, *(r.name.replace("*", "x") for r in known.REFUSED_PROPERTIES)})
PREFIXES = [
    *families._PREFIXES, families.DRIVER_PREFIX, "transforms.a.", "transforms.a.topic.", "transforms.", "c.",
    "database.history.",
    "value.converter.", "column.mask.hash.", "column.mask.hash.v2.", "column.mask.with.", "column.truncate.to.",
]  # fmt: skip
ENDS = [
    "type", "regex", "replacement", "selector", "sasl.jaas.config", "ssl.keystore.location", "ssl.keystore.type",
    "acks",
    "linger.ms", "max.request.size", "SHA-256.with.salt.s", "MD5.with.salt.", "3.chars", "-1.chars",
    "9" * 5000 + ".chars",
    "\u0663.chars", "shop.orders", "key.field.regex", "key.field.replacement", "cleanup.policy", "buffer.memory",
    "read_timeout",
]  # fmt: skip
VALUES = [
    "", " ", "true", "FALSE", "0", "-1", "1", "9" * 5000, "\u0663", "1e3", "a", "a,b", "a,a", "a\\", "\\,", "(a+)+$",
    "(a|aa)+b",
    "(", "[", "[[a]]", "a{2}", "a{9999999999}", "$1", "${a}", "${f:x}", "${" * 99, "\\Q", "\\E", "shop.orders:id;x",
    ":", ";", ":;:",
    "t:a,b;u:c", "none", "none,c", "c,u", "warn", "initial", "k:1,[::1]:2", ":", "k:99999", "\x00", "\ud800",
    "io.debezium.Foo",
    "os.path", "json.JSONDecoder", "org.apache.kafka.connect.transforms.RegexRouter",
    "io.debezium.transforms.ByLogicalTableRouter",
    "o.PlainLoginModule required username=a password=b;", "o.Plain required " + "a=" * 999, "SELECT 1", "\n", "../x",
    "a b",
    "(?<x>a)", "(?P<x>a)", "(?i)a", "\\1", "(a)\\2", "a*" * 99, "1.9", "3.x", "x" * 300, "a.b.c,(",
    "123456789012345678901",
]  # fmt: skip
names = st.one_of(
    st.sampled_from(NAMES),
    st.builds(str.__add__, st.sampled_from(PREFIXES), st.one_of(st.sampled_from(ENDS), st.text(max_size=5))),
    st.text(max_size=12),
)
values = st.one_of(st.sampled_from(VALUES), st.text(max_size=12), st.integers(), st.booleans(), st.none(), st.floats())
LISTS = st.fixed_dictionaries({}, optional={"transforms": st.just("a"), "converters": st.just("c")})


def used(cfg: ConnectorConfig) -> None:
    """Ask a configuration everything that a job asks it."""
    for ask in (
        lambda: cfg.captures(T),
        lambda: cfg.stores_ddl(T),
        lambda: cfg.snapshots_rows(T),
        lambda: cfg.includes_column(T, "id"),
        lambda: cfg.column_rules(T, "id", "INT"),
        lambda: cfg.is_boolean(T, "id", "TINYINT", 1),
        lambda: cfg.route_topic("p.shop.orders"),
        lambda: cfg[F.MESSAGE_KEY_COLUMNS].select(T, ("id", "x")),
        lambda: property_pins(cfg, snapshot=True),
    ):
        tolerated(ask)
    for role in (None, "producer", "consumer", "admin"):
        cfg.kafka_settings(role)
    cfg.connection_settings()
    cfg.topic_creation_settings()
    assert repr(cfg) and ConnectorConfig.from_properties(cfg.properties()).properties() == cfg.properties()


@FUZZ
@given(LISTS, st.dictionaries(names, values, max_size=6))
def test_a_configuration_is_read_or_refused(lists: dict[str, Any], properties: dict[str, Any]) -> None:
    given_ = {**BASE, **lists, **properties}
    with two_seconds():
        problems = ConnectorConfig.check(given_)
        str(problems)
    if problems:
        assert not tolerated(lambda: ConnectorConfig.from_properties(given_), ConfigError)
    else:
        used(ConnectorConfig.from_properties(given_))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
documents = st.one_of(
    st.text(max_size=20),
    st.fixed_dictionaries(
        {}, optional={k: json_values for k in ("name", "config", "spec", "metadata", "topic.prefix")}
    ).map(json.dumps),
    st.sampled_from(["[" * 100_000, "1" * 5000, '{"a":' * 9_999, "NaN", '{"spec":{"config":[]}}']),
)


@FUZZ
@given(documents)
def test_a_connect_document_is_read_or_refused(document: str) -> None:
    tolerated(lambda: ConnectorConfig.from_connect_json(document), ConfigError)
    assume("\x00" not in document)
    tolerated(lambda: sources.load_config([sources.environment_source({sources.ENV_DOCUMENT: document})]), ConfigError)


# records

AT = BinlogOffset("binlog.000007", 157, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "u-1")
END = BinlogOffset("binlog.000008", 4)
XA = PreparedXa("X'6f',X'',1", "binlog.000007", 4, 99)
PLAN = BatchPlan(6, "drain", AT, END, 2, {"t": 2}, {"t": (0, 1)}, "o", 1, 5, (XA,), {"a": "=b"})
CHUNK = SnapshotChunk(
    TableId("d", "t"), 0, ("n", "m"), ("a", 1), ("z", 2), True, 5, ("utf8mb4 utf8mb4_bin", "UNSIGNED")
)
OTHER_CHUNK = SnapshotChunk(
    TableId("d", "t"),
    1,
    ("a", "b", "c", "d", "e"),
    ("0000-00-00", "-01:00:00.5", "-1.50", "00ff", "2020-01-01 00:00:00"),
    ("2020-02-30", "838:59:59.0", "12.00", "", "2020-01-01 00:00:00"),
    True,
    5,
    ("DATE", "TIME 1", "DECIMAL 10 2", "VARBINARY", "TIMESTAMP 0"),
)
DONE = {"epoch": 6, "status": "done", "offset": AT.to_json()}
STATE = StoredState(6, AT, PLAN, (PastOffset(5, AT, 1),), DONE, 3, "id", 7, "s")
RECORDS: dict[str, dict[str, Any]] = {
    "plan": PLAN.to_json(),
    "writer/0": Marker(6, 0, AT, END, ResumePosition(AT, 3, 1), True, {"t": 5}, None, (XA,)).to_json(),
    "writer/1": Marker(6, 1, AT, END, ResumePosition(END), True).to_json(),
    "chunk/d.t/0": {
        "epoch": 6,
        "chunk": CHUNK.to_json(),
        "offset": AT.to_json(),
        "rows": 5,
        "left_out": 0,
        "ts_ms": 1,
        "list": "a",
        "order": 0,
    },
    "snapshot": DONE,
    "view": {"epoch": 6, "offset": AT.to_json(), "ts_ms": 1},
    "outcome": {"epoch": 6, "ok": False, "error": ConfigError("x").to_json(), "counts": {"t": 5}, "ts_ms": 1},
}
HISTORY = json.loads(
    HistoryRecord(
        "p", AT, 6, 1, "d", "CREATE TABLE t (a INT)", DdlContext("d", 4, 8, 8),
        ({"type": "CREATE", "id": '"d"."t"'},), True,
    ).to_bytes()
)  # fmt: skip
SPEC = JobSpec("drain", {"a": "b", "c": 1}, PLAN.to_json(), "o", 1.5).to_json()
NASTY = st.one_of(
    st.sampled_from([
        None, True, -1, 2**64, 10**400, 1.5, float("nan"), float("inf"), "", "x", "1", "\ud800", "a" * 600,
        "binlog.x", [], [1],
        [[]], [None], {}, {"a": 1}, {"": {}}, "SIGNED", ["SIGNED"], ["utf8mb4) --"], ["`"], "drain", "snapshot",
        "reset", "done",
    ]),
    json_values,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, record: dict[str, Any]) -> dict[str, Any]:
    """Draw a record with up to three members replaced, removed or added, at any depth."""
    changed: dict[str, Any] = json.loads(json.dumps(record))
    for _ in range(draw(st.integers(1, 3))):
        inside: Any = changed
        while True:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(inside[key], (dict, list)) and inside[key] and draw(st.integers(0, 3)):
                inside = inside[key]
                continue
            if draw(st.integers(0, 4)):
                inside[key] = copy.deepcopy(draw(NASTY))
            else:
                del inside[key]
            break
    return changed


def written(data: object, cut: int | None) -> bytes:
    """Return JSON as somebody may have written it, perhaps cut off."""
    return json.dumps(data).encode("utf-8", "surrogatepass")[:cut]


cuts = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 200))


@FUZZ
@given(st.data(), st.sampled_from(sorted(RECORDS)), cuts, st.sampled_from([None, STATE, StoredState()]))
def test_a_ledger_is_read_or_named(data: st.DataObject, key: str, cut: int | None, stored: StoredState | None) -> None:
    records: dict[str, bytes | None] = {k: encode(v) for k, v in RECORDS.items()}
    records[key] = written(data.draw(damaged(versioned(RECORDS[key]))), cut)

    def work() -> None:
        ledger = build_ledger_state(records, "id", lambda k: f"key {k}")
        ledger.complete(), ledger.end(), ledger.prepared(), ledger.missing_writers()
        assert len(ledger.writer_ids()) < 20_003
        assert ledger.plan is None or ledger.plan.kind == "reset" or ledger.plan.assigned_writer("t", 1) >= 0
        reconcile(stored, ledger)
        for record in ledger.chunks.values():
            used_chunk(record["chunk"])
        for entry in (ledger.snapshot or {}).get("filters", ()):
            used_chunk(entry["chunk"])
        if ledger.outcome and ledger.outcome.get("error"):
            str(from_json(ledger.outcome["error"]))

    tolerated(work)


SQL = re.compile(
    r"(?:`(?:[^`]|``)*`|_utf8mb4 (?:0x[0-9a-f]*|'')|x'[0-9a-f]*'|(?:TIME)?'[-:. 0-9]*'|-?\d+(?:\.\d+)?"
    r"|[()=<>,\s]|AND|OR|TRUE|CONVERT|USING|COLLATE)*",
    re.DOTALL,
)


def used_chunk(data: Any) -> None:
    """Make SQL of a chunk and look whether it consists of names, literals and comparisons only."""
    chunk = SnapshotChunk.from_json(data)
    assert SnapshotChunk.from_json(chunk.to_json()) == chunk
    texts = [chunk_condition(chunk)]
    for bound in (chunk.low, chunk.high):
        texts += [kind.literal(v) for v, kind in zip(bound or (), map(key_kind_of, chunk.kinds), strict=False) if kind]
    assert all(SQL.fullmatch(text) for text in texts)


@FUZZ
@example({**CHUNK.to_json(), "table": "\ud800"})
@given(st.sampled_from([CHUNK, OTHER_CHUNK]).flatmap(lambda chunk: damaged(chunk.to_json())))
def test_a_chunk_is_read_or_named_and_its_sql_is_harmless(data: dict[str, Any]) -> None:
    tolerated(lambda: used_chunk(data))


@FUZZ
@given(damaged(HISTORY), cuts)
def test_a_history_record_is_read_or_named(data: dict[str, Any], cut: int | None) -> None:
    def work() -> None:
        record = HistoryRecord.from_bytes(written(data, cut), "topic h, offset 1")
        assert HistoryRecord.from_bytes(record.to_bytes()) == record
        record.uncaptured_table(lambda table: False), record.identity()
        replay([record, record], until=END, epoch=6, captures=lambda table: True)

    tolerated(work, SchemaError, StoredVersionError)


@FUZZ
@given(st.one_of(damaged(STATE.to_json()), json_values))
def test_a_stored_state_is_read_or_named(data: Any) -> None:
    def work() -> None:
        state = StoredState.read(parse_json(json.dumps(data)), "asset state")
        assert StoredState.from_json(state.to_json()) == state
        reconcile(state, build_ledger_state({k: encode(v) for k, v in RECORDS.items()}, "id"))

    tolerated(work)


@FUZZ
@given(st.one_of(damaged(SPEC), json_values))
def test_a_job_spec_is_read_or_named(data: Any) -> None:
    tolerated(lambda: JobSpec.from_json(parse_json(json.dumps(data))))


@FUZZ
@given(st.one_of(damaged(ConfigError("x", why="y").to_json()), json_values), st.integers(0, 60))
def test_an_error_that_was_recorded_becomes_an_error(data: Any, cut: int) -> None:
    assert isinstance(from_json(data), CdcError)
    text = json.dumps(data)
    for shown in (text, text[:cut], "[" * 100_000):
        with two_seconds():
            named_error(RuntimeError(f"a task failed: {ERROR_MARK}{shown}"))


def test_the_reading_of_records_is_tried_on_records_that_can_be_read() -> None:
    ledger = build_ledger_state({k: encode(v) for k, v in RECORDS.items()})
    assert ledger.complete() and len(ledger.markers) == 2
    used_chunk(CHUNK.to_json())
    assert StoredState.from_json(STATE.to_json()) == STATE

"""The reports of a verification: what they show, what they hide, and that they stay readable."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from kit.cases import for_each
from kit.memory_job import config
from kit.verify_results import CUSTOMERS, ORDERS, verify_result

from airflow_provider_mysql_cdc.cdc.verify.report.report_text import (
    MAX_DETAILED_TABLES,
    MAX_TABLE_LINES,
    WIDTH,
    next_step,
    report_text,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import hide_values
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_differences
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    Example,
    NotCompared,
    RepairMode,
    TableVerdict,
    VerifyRequest,
    VerifyResult,
)

pytestmark = pytest.mark.quick
UNREAD = TableVerdict("shop.a", "s.shop.a", unknown=("not compared: x",), not_compared=NotCompared.UNREAD)


def many(count: int, *, different: bool) -> list[TableVerdict]:
    findings = {DifferenceKind.GHOST: 1} if different else {}
    examples = tuple(Example(DifferenceKind.GHOST, {"id": n}) for n in range(10)) if different else ()
    return [TableVerdict(f"shop.t{n:05}", f"s.shop.t{n:05}", 10, 10, findings, examples=examples) for n in range(count)]


def test_the_text_says_what_differs_where_and_what_was_done() -> None:
    text = report_text(verify_result(ORDERS, CUSTOMERS))
    lines = text.splitlines()
    assert lines[0] == "1 of 2 tables of s differ from their topics."
    assert "compared at binlog.000003:1234; 2026-11-26" in lines[1] and "50 s" in lines[1]
    header, counts = (re.split(r"  +", line) for line in lines[lines.index("") + 1 :][:2])
    assert dict(zip(header, counts, strict=True)) == {
        "table": "shop.orders",
        "rows": "1,000,010",
        "records": "12",
        "missing": "1",
        "ghost": "0",
        "differing": "3",
        "other": "2",
        "repaired": "1",
    }
    assert "columns that differ: item 3, total 1" in text
    assert '  - missing: {"id": 1}\n      table: {"id": 1, "total": "2"}\n' in text
    assert '  - differing: {"id": 7}, differs in item, at s.shop.orders[0]@7\n' in text
    assert '      table: {"item": "<b>new</b>"}\n      topic: {"item": "old"}\n' in text
    assert "2 tables, 1,000,013 rows, 16 records; 1 table without differences" in text
    assert "not judged: the topic was compacted (shop.orders)" in text
    assert lines[-2].startswith("what to do: find out what has changed them (docs/verify.md lists causes); to write")
    assert "shop.customers" not in text, "tables without differences are counted only"


@for_each(
    ("tables", "sentence"),
    [
        ([], "No table of s was compared."),
        ([CUSTOMERS], "Every topic of s equals its table: 1 table compared."),
        (
            [replace(CUSTOMERS, unknown=("x",))],
            "Every topic of s equals its table, as far as it can be judged: 1 table compared.",
        ),
        (
            [replace(CUSTOMERS, findings={DifferenceKind.DUPLICATE: 1})],
            "1 of 1 table of s have records that are not as expected; every topic equals its table.",
        ),
        (
            [replace(CUSTOMERS, findings={DifferenceKind.GHOST: 2}, repaired={DifferenceKind.GHOST: 2})],
            "1 of 1 table of s differed from their topics; all differences are repaired.",
        ),
        ([UNREAD], "1 of 1 table of s could not be judged in full."),
        ([replace(CUSTOMERS, unjudged=3)], "1 of 1 table of s could not be judged in full."),
        ([CUSTOMERS, UNREAD], "1 of 2 tables of s could not be judged in full; every other topic equals its table."),
        (
            [ORDERS, CUSTOMERS, UNREAD],
            "1 of 3 tables of s differ from their topics. 1 table could not be judged in full.",
        ),
        (
            [replace(CUSTOMERS, findings={DifferenceKind.DUPLICATE: 1}), UNREAD],
            "1 of 2 tables of s have records that are not as expected. 1 table could not be judged in full.",
        ),
    ],
)
def test_the_first_sentence_is_the_verdict(tables: list[TableVerdict], sentence: str) -> None:
    assert report_text(verify_result(*tables)).splitlines()[0] == sentence


@pytest.mark.parametrize("different", [False, True])
def test_five_thousand_tables_stay_readable(different: bool) -> None:
    result = verify_result(*many(5_000, different=different))
    lines = report_text(result).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= (MAX_TABLE_LINES + MAX_DETAILED_TABLES * 13 + 20 if different else 8)
    if different:
        assert f"and {5_000 - MAX_TABLE_LINES:,} tables more with 4,950 differences" in lines


@for_each(
    ("repair", "tables", "steps"),
    [
        (RepairMode.NO, [ORDERS], ["repair=dry-run, then with repair=yes", "records stay in a topic"]),
        (RepairMode.DRY_RUN, [ORDERS], ["to write the rows as they are now, run mysql_cdc_verify with repair=yes;"]),
        (RepairMode.YES, [ORDERS, UNREAD], ["with repair=yes again", "mysql_cdc_snapshot with again=true"]),
        (RepairMode.NO, [UNREAD], ["mysql_cdc_snapshot with again=true"]),
        (RepairMode.YES, [replace(ORDERS, repaired=ORDERS.findings), CUSTOMERS], []),
    ],
)
def test_what_is_open_has_a_next_step(repair: RepairMode, tables: list[TableVerdict], steps: list[str]) -> None:
    told = next_step(verify_result(*tables, request=VerifyRequest(repair=repair)))
    assert all(step in told for step in steps) and bool(told) is bool(steps)


def test_the_most_different_tables_come_first() -> None:
    worse = TableVerdict("shop.z", "s.shop.z", findings={DifferenceKind.GHOST: 90})
    text = report_text(verify_result(*many(100, different=True), worse))
    assert text.index("shop.z ") < text.index("shop.t00000")


def test_long_rows_and_names_do_not_break_the_table() -> None:
    key = {"id": "k" * 500}
    long = TableVerdict(
        "d" * 64 + "." + "t" * 64,
        "topic." + "t" * 240,
        findings={DifferenceKind.GHOST: 1},
        columns={f"column_{n}": n for n in range(400)},
        examples=(Example(DifferenceKind.GHOST, key, (), key, key, "r"),),
    )
    assert max(map(len, report_text(verify_result(long)).splitlines())) <= WIDTH


HOSTILE = "\x1b[31m<script>alert('x')</script>\n\u202e\x00&\"</td>"


def hostile_result() -> VerifyResult:
    row = {HOSTILE: HOSTILE, "n": None}
    example = Example(DifferenceKind.DIFFERING, row, (HOSTILE,), row, row, HOSTILE)
    verdict = TableVerdict(
        f"shop.{HOSTILE}",
        HOSTILE,
        findings={DifferenceKind.DIFFERING: 1},
        columns={HOSTILE: 1},
        unknown=(HOSTILE,),
        examples=(example,),
    )
    request = VerifyRequest((HOSTILE,))
    clean = TableVerdict(f"a.{HOSTILE}", HOSTILE)
    return replace(verify_result(verdict, clean, run=HOSTILE, request=request), prefix=HOSTILE)


def test_names_and_values_cannot_act_on_a_terminal() -> None:
    text = report_text(hostile_result())
    assert all(line.isprintable() for line in text.split("\n"))
    assert max(map(len, text.split("\n"))) <= WIDTH


SECRETS = ("s3cret-of-table", "s3cret-of-topic")


def reports(result: VerifyResult) -> str:
    # The text shows only the columns that differ; all of them differ here.
    examples = tuple(replace(e, columns=("item", "secret")) for e in result.tables[0].examples)
    result = replace(result, tables=(replace(result.tables[0], examples=examples),))
    return "\n".join([report_text(result), json.dumps(result.to_json())])


@pytest.mark.parametrize(
    "rule",
    [
        "column.mask.with.5.chars",
        "column.mask.hash.SHA-256.with.salt.pepper",
        "column.mask.hash.v2.SHA-256.with.salt.pepper",
    ],
)
def test_values_of_masked_and_hashed_columns_are_in_no_report(rule: str) -> None:
    cfg = config(**{rule: "shop.orders.secret"})
    shown = reports(verify_result(ORDERS))
    assert all(secret in shown for secret in SECRETS)
    hidden = reports(hide_values(cfg, verify_result(ORDERS)))
    assert not any(secret in hidden for secret in SECRETS)
    assert "<b>new</b>" in hidden and "***" in hidden


def test_a_masked_column_is_hidden_in_keys_too() -> None:
    cfg = config(**{"column.mask.with.5.chars": "shop.orders.id"})
    hidden = hide_values(cfg, verify_result(ORDERS))
    assert [dict(example.key) for example in hidden.tables[0].examples] == [{"id": "***"}] * 2


def test_no_values_are_in_a_report_that_may_not_show_them() -> None:
    request = VerifyRequest(repair=RepairMode.NO, show_values=False)
    hidden = hide_values(config(), verify_result(ORDERS, request=request))
    told = reports(hidden)
    assert not any(value in told for value in (*SECRETS, "new", "old"))
    assert '{"id": 7}' in report_text(hidden)


def test_a_column_that_is_cut_but_not_masked_is_shown() -> None:
    cfg = config(**{"column.truncate.to.100.chars": "shop.orders.secret"})
    assert hide_values(cfg, verify_result(ORDERS)) == verify_result(ORDERS)


def test_repaired_differences_are_not_left() -> None:
    assert left_differences(ORDERS) == {DifferenceKind.DIFFERING: 3, DifferenceKind.DUPLICATE: 2}
    assert left_differences(replace(ORDERS, repaired=ORDERS.findings)) == {}

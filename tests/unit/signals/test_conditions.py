"""A condition of a signal is one expression: nothing of it acts outside of its parentheses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from airflow_provider_mysql_cdc.cdc.incremental import signal_processor as taking
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals import actions
from airflow_provider_mysql_cdc.cdc.signals.actions import SignalRefused, quoting_mode, require_contained


@for_each(
    "sql",
    [
        "id > 5",
        "(a = 1 OR b IN (1, 2)) AND c LIKE '%)(%'",
        "a = 'it''s ;)' -- ) and so on",
        "a = 1 # )",
        "a /* ) ; */ = 1",
        '`a)` = ")"',
        "note LIKE '%/*!%'",
        r"a = 'it\'s )'",
    ],
)
def test_an_expression_is_accepted_and_one_parenthesis_more_is_not(sql: str) -> None:
    require_contained(sql, 0)
    with pytest.raises(SignalRefused, match="did not open"):
        require_contained(f") {sql}", 0)


@for_each(
    ("sql", "why"),
    [
        ("1) OR (1", "did not open"),
        (")(", "did not open"),
        ("(1", "does not close"),
        ("1; DROP TABLE t", "semicolon"),
        ("a = 'x", "not closed"),
        ("`a", "not closed"),
        ("1 /*!50000 ) OR ( */", "executable comment"),
        ("1 /*!99999 ) OR (1 */", "executable comment"),
    ],
)
@pytest.mark.req("INC-29")
def test_what_reaches_beyond_its_place_is_refused(sql: str, why: str) -> None:
    with pytest.raises(SignalRefused, match=why):
        require_contained(sql, 0)


def test_where_a_text_ends_is_a_matter_of_the_servers_mode() -> None:
    tricky = r"a = '\' OR (1=1) OR b = ')'"
    require_contained(r"a = '\\'", 0)
    with pytest.raises(SignalRefused):
        require_contained(tricky, 0)
    require_contained(tricky, NO_BACKSLASH_ESCAPES)
    require_contained('"x)" = 1', ANSI_QUOTES)


def sound(monkeypatch: pytest.MonkeyPatch, condition: str, count: int) -> None:
    """Ask whether a condition is taken for so many tables."""
    monkeypatch.setattr(taking, "quoting_mode", lambda conn: 0)
    asked: Any = SimpleNamespace(
        conn=None, state=IncrementalState({9: TableScan(TableId("d", "x"), "s", 9, condition="x" * 10)})
    )
    taking.SignalProcessor._check_conditions(asked, {TableId("d", f"t{n}"): condition for n in range(count)})


@pytest.mark.req("INC-29")
def test_a_signals_conditions_are_looked_at_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of each scan holds its own: a thousand tables hold a condition a thousand times."""
    sound(monkeypatch, "id > 5", 1000)
    with pytest.raises(SignalRefused, match="not a complete expression"):
        sound(monkeypatch, "1) OR (1", 1)
    large = "1" * (taking.MAX_CONDITION_BYTES // 1000 + 1)
    sound(monkeypatch, large, 999)
    with pytest.raises(SignalRefused, match="one for each of 1000"):
        sound(monkeypatch, large, 1000)


def test_the_mode_is_the_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "fetch_all", lambda conn, sql: [("ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE",)])
    assert quoting_mode(None) == ANSI_QUOTES | NO_BACKSLASH_ESCAPES
    monkeypatch.setattr(actions, "fetch_all", lambda conn, sql: [("STRICT_ALL_TABLES",)])
    assert quoting_mode(None) == 0

"""Regular expressions of a configuration end in time, whatever they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.model.table import TableId

pytestmark = pytest.mark.quick

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
TABLE = TableId("a" * 60, "a" * 60 + "!")
HOSTILE = [
    r"(a+)+$",
    r"((a|aa)+\.?)+$",
    r"(a|aa)+\.(a|aa)+$",
    r"(([a-z])+.)+[A-Z]([a-z])+$",
    r"((?:a?){60})((?:a?){60})\.((?:a?){60})b",
    r"(?=((a|aa)+))\1\.(a|aa)+b",
    r"(?:(?:a{1,100}){1,100}\.?){1,10}b",
    "(" * 5000 + "a" + ")" * 5000,
    "(?:" * 5000 + "a+" + ")+" * 5000,
    "[" * 50_000,
    "a{4294967296}",
    "(?:a{1000}){1000}" * 20,
    "a{" + "9" * 5000 + "}",
    "a?" * 49_000 + "b",
    "|".join(["a"] * 60_000),
    "(?i" * 10_000,
    r"\Q" * 20_000,
]
PATTERNED: dict[str, Callable[[ConnectorConfig], object]] = {
    "table.include.list": lambda cfg: cfg.captures(TABLE),
    "table.exclude.list": lambda cfg: cfg.captures(TABLE),
    "database.include.list": lambda cfg: cfg.captures(TABLE),
    "database.exclude.list": lambda cfg: cfg.captures_database(TABLE.table),
    "column.include.list": lambda cfg: cfg.includes_column(TABLE, "a"),
    "column.exclude.list": lambda cfg: cfg.includes_column(TABLE, "a"),
    "snapshot.include.collection.list": lambda cfg: cfg.snapshots_rows(TABLE),
    "column.truncate.to.3.chars": lambda cfg: cfg.column_rules(TABLE, "a", "INT"),
    "column.mask.with.3.chars": lambda cfg: cfg.column_rules(TABLE, "a", "INT"),
    "column.mask.hash.v2.SHA-256.with.salt.S": lambda cfg: cfg.column_rules(TABLE, "a", "INT"),
    "column.propagate.source.type": lambda cfg: cfg.column_rules(TABLE, "a", "INT"),
    "datatype.propagate.source.type": lambda cfg: cfg.column_rules(TABLE, "a", "INT"),
    "transforms.r.regex": lambda cfg: cfg.route_topic(str(TABLE)),
    "b.selector": lambda cfg: cfg.is_boolean(TABLE, "a", "TINYINT", 1),
    "message.key.columns": lambda cfg: cfg[F.MESSAGE_KEY_COLUMNS].select(TABLE, ("a", "b")),
}


def judged(name: str, text: str) -> str:
    """Return ``result`` or the name of the error that a property with a value ends in."""
    properties = {**BASE, name: text}
    if name.startswith("transforms."):
        regex_router = "org.apache.kafka.connect.transforms.RegexRouter"
        properties |= {"transforms": "r", "transforms.r.type": regex_router, "transforms.r.replacement": "t"}
    if name.startswith("b."):
        properties |= {
            "converters": "b",
            "b.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
        }
    try:
        PATTERNED[name](ConnectorConfig.from_properties(properties))
    except ConfigError as error:
        assert len(str(error)) < 2_000
        return "ConfigError"
    return "result"


@for_each("text", HOSTILE, ids=lambda text: text[:30])
def test_a_hostile_expression_ends_within_two_seconds(text: str) -> None:
    began = time.thread_time()
    judged("table.include.list", text)
    assert time.thread_time() - began < 2


@for_each("name", PATTERNED)
def test_every_property_with_expressions_ends_within_two_seconds(name: str) -> None:
    text = r"(a|aa)+\.(a|aa)+(!\.a?)+z" if name != "message.key.columns" else r"(a|aa)+\.(a|aa)+(!)+z:(a|aa)+"
    began = time.thread_time()
    assert judged(name, text) == "ConfigError"
    assert time.thread_time() - began < 2


def test_time_that_other_threads_take_is_not_that_of_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of ``regex`` counts the CPU of the whole process, in which forty streams may work."""
    quick, tries = Expression("shop"), list[bool]()

    def match(name: str, timeout: float, concurrent: bool) -> Any:
        tries.append(concurrent)
        if len(tries) < 4:
            raise TimeoutError
        return name

    assert quick._match_with_timeout(match, "shop") == "shop"  # type: ignore[comparison-overlap]
    assert tries == [False] * 4, "other threads of Python wait meanwhile"
    spent = iter((0.0, 0.3))
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    tries.clear()
    with pytest.raises(ConfigError, match="takes too long"):
        quick._match_with_timeout(match, "shop")


def test_slow_matches_of_one_expression_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Expression("(a|aa)+b")
    spent = iter(range(100))
    monkeypatch.setattr(time, "thread_time", lambda: next(spent) * 0.3)
    for _ in range(3):
        assert slow.fullmatch("aaa") is None
    with pytest.raises(ConfigError, match="takes too long"):
        slow.fullmatch("aaa")


@for_each(
    ("text", "name", "fits"),
    [
        (r"^(?!shop\.tmp_).*", "shop.tmp_1", False),
        (r"^(?!shop\.tmp_).*", "shop.orders", True),
        (r"SHOP\.Orders", "shop.orders", True),
        (r"shop\.[\w$]++", "shop.a$1", True),
        (r"shop\.(?>a|ab)c", "shop.abc", False),
        (r"(\w+)\.\1", "a.a", True),
        (r"k", "\u212a", False),
        (r"\d", "\u0661", False),
        (r"shop\.a\{e<=1\}", "shop.a{e<=1}", True),
    ],
)
def test_what_java_matches_is_matched(text: str, name: str, fits: bool) -> None:
    assert (Expression(text).fullmatch(name) is not None) is fits


@for_each("text", ["a{e<=1}", "a{", "a{,3}", "(?P<n>a){x}"])
def test_a_brace_that_java_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="brace"):
        Expression(text)


@for_each("text", ["[a-z&&[^b]]", "[a[bc]]", "[[:alpha:]]+", "[a&&b]", "[a--b]", "[+--]", "[a||b]", "[^~~]", r"[\\[a]"])
def test_a_set_operation_of_java_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="a set holds"):
        Expression(text)


@for_each(("text", "name"), [(r"[\[a]+", "[a"), (r"[a\-\-b]+", "a-b"), ("[a&b|c]+", "a&|c"), ("[a-c-]", "-")])
def test_a_set_without_an_operation_matches(text: str, name: str) -> None:
    assert Expression(text).fullmatch(name)

"""Classes that a configuration names are imported only where the deployment allows them."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from fakes import connections

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks import allowed_classes
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook

MODULE = "converter_of_somebody"
PATH = f"{MODULE}.Converter"
NAMED = {"converters": "a, isbn", "isbn.type": PATH, "a.type": "os.path.join"}
BOOLEAN = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module with a converter where Python finds it."""
    methods = "    def configure(self, properties): ...\n    def converter_for(self, column): ...\n"
    (tmp_path / f"{MODULE}.py").write_text(f"class Converter:\n{methods}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


def refused(properties: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError, match="not among those that this deployment allows") as caught:
        MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config(properties)
    assert MODULE not in sys.modules
    assert not caught.value.can_retry and "AIRFLOW__MYSQL_CDC__ALLOWED_CLASSES" in caught.value.remedy
    return caught.value.where


@pytest.mark.parametrize("registry", [None, "r"])
def test_a_class_of_a_connection_is_not_imported_where_it_is_not_allowed(
    monkeypatch: pytest.MonkeyPatch, registry: str | None
) -> None:
    connections(monkeypatch, **NAMED, schema_registry_conn_id=registry)
    both = "a.type (connection mysql_cdc_default), isbn.type (connection mysql_cdc_default)"
    assert refused() == both


def test_nor_one_of_the_task_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch)
    assert refused({"converters": "x", "x.type": PATH}) == "x.type (the task's properties)"
    monkeypatch.setenv("MYSQL_CDC_PROPERTIES", '{"x.type": "' + PATH + '"}')
    assert refused({"converters": "x"}) == "x.type (the environment)"


def test_the_option_allows_single_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, **NAMED)
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__ALLOWED_CLASSES", f"other.Class, {PATH}")
    assert refused() == "a.type (connection mysql_cdc_default)"
    connections(monkeypatch, converters="isbn", **{"isbn.type": PATH})
    cfg = MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config()
    assert cfg.families.columns.converters and MODULE in sys.modules


def test_an_entry_point_allows_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, converters="isbn", **{"isbn.type": PATH})
    point = EntryPoint("isbn", f"{MODULE}:Converter", allowed_classes.ENTRY_POINT_GROUP)
    monkeypatch.setattr(allowed_classes, "entry_points", lambda group: [point] if group == point.group else [])
    assert MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config().families.columns.converters


def test_those_of_debezium_need_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, converters="flag", **{"flag.type": BOOLEAN})
    assert MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config().families.columns.converters

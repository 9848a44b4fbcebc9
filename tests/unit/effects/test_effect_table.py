"""Each property has one test that shows its effect (tests/effects.toml), or says that it has none."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import property_families

TESTS = Path(__file__).resolve().parents[2]
WITHOUT = {
    F.NAME.name: "only read",
    F.CONNECTOR_CLASS.name: "only checked",
    F.INCREMENTAL_SNAPSHOT_ALLOW_SCHEMA_CHANGES.name: "both values mean the same",
}
"""Properties without an effect, as docs/properties.md says."""


def effects() -> dict[str, list[str]]:
    return tomllib.loads((TESTS / "effects.toml").read_text(encoding="utf-8"))


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = TESTS / file
    if file.startswith("unit/config/") or not path.is_file():  # the parser is not the effect
        return False
    functions = (
        n.name for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef)
    )
    return not name or name in functions


def test_each_property_has_one_test_of_its_effect() -> None:
    named = Counter(name for names in effects().values() for name in names)
    families = {*property_families._PREFIXES, property_families.DRIVER_PREFIX}
    assert {name: count for name, count in named.items() if count > 1} == {}
    assert named.keys() - F.BY_NAME.keys() - families == set(), "no such property"
    assert (F.BY_NAME.keys() | families) - named.keys() == WITHOUT.keys(), "properties without a test of their effect"


def test_each_test_exists() -> None:
    assert [test for test in effects() if not exists(test)] == []
    assert not exists("unit/config/test_parse.py") and not exists("unit/effects/test_effect_table.py::test_none")

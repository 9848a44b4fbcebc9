"""The runbook is searched for messages, so each one that it quotes stands in the package."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from kit.cases import for_each

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[3]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^### `(.+)`$", RUNBOOK, re.MULTILINE) + re.findall(
    r"`(a stored record .+?|the stored state .+?|a newer attempt .+?|Kafka(?:'s)? .+?)`", RUNBOOK
)


@functools.cache
def texts() -> list[str]:
    """Return the texts of the package, with "..." in the place of each inserted value."""
    found: list[str] = []
    for path in sorted((ROOT / "airflow_provider_mysql_cdc").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "..." for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@for_each("message", MESSAGES)
def test_a_quoted_message_stands_in_the_package(message: str) -> None:
    assert any(message in text for text in texts()), f"no text of the package says {message!r}"


def test_the_table_has_a_row_for_each_error_and_is_current() -> None:
    from airflow_provider_mysql_cdc.cdc import errors
    from airflow_provider_mysql_cdc.cdc.error_reference import render

    module = "airflow_provider_mysql_cdc.cdc.error_reference"
    assert render(RUNBOOK) == RUNBOOK, f"run: python -m {module} docs/runbook.md"
    declared = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CdcError)]
    assert [error for error in declared if f"`{error.__name__}` | " not in RUNBOOK] == []
    assert [error for error in declared if "advice" not in vars(error)] == [], "what should a person do?"


def test_each_error_comes_back_from_its_record() -> None:
    from airflow_provider_mysql_cdc.cdc.errors import ERROR_TYPES, from_json

    for kind in ERROR_TYPES.values():
        assert type(from_json(kind("x").to_json())) is kind


def test_the_runbook_names_only_errors_that_exist() -> None:
    from airflow_provider_mysql_cdc.cdc.errors import ERROR_TYPES

    assert set(re.findall(r"`(\w+Error)`", RUNBOOK)) <= set(ERROR_TYPES)

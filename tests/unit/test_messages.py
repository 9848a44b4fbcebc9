"""Texts of the package that people read: none names a requirement, whose list they do not have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

pytestmark = pytest.mark.quick
PACKAGE = Path(__file__).resolve().parents[2] / "airflow_provider_mysql_cdc"
ID = re.compile(r"\((?:[A-Z]{2,6}-\d+)(?:, [A-Z]{2,6}-\d+)*\)")


def test_no_text_names_a_requirement() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        found += [f"{path.name}:{text.lineno}" for text in texts if id(text) not in docs and ID.search(text.value)]
    assert found == []


def test_a_list_of_causes_ends_with_its_last_line() -> None:
    error = ConfigError("two problems", why="\n  1. the first\n  2. the second\n", remedy="mend them")
    assert error.message() == (
        "two problems. Why: \n  1. the first\n  2. the second.\nWhat to do: mend them. A retry will not help."
    )
    plain = ConfigError("no", why="so", remedy="mend it")
    assert plain.message() == "no. Why: so. What to do: mend it. A retry will not help."

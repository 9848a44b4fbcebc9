"""The map of the code and the page of guarantees: each file, name and test that they name exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import writer_key
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[3]
MAP, GUARANTEES = (ROOT / "docs" / name for name in ("architecture.md", "guarantees.md"))
BASES = (ROOT / "airflow_provider_mysql_cdc" / "cdc", ROOT / "airflow_provider_mysql_cdc", ROOT)
NAMED = re.compile(r"`([\w./]+/[\w.]*\w|[\w]+\.py)(?:::([\w.]+))?`")
TEST = re.compile(r"\[([\w/]+\.py)::(\w+)\]\(\.\./tests/([\w/]+\.py)\)( †)?")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def names(path: Path) -> set[str]:
    """Return the classes and functions of a file, those of a class with its name before them."""
    found, classes = set[str](), (ast.ClassDef, ast.FunctionDef)
    for node in tree(path).body:
        if isinstance(node, classes):
            found |= {node.name} | {f"{node.name}.{child.name}" for child in node.body if isinstance(child, classes)}
    return found


def test_each_file_and_name_of_the_map_exists() -> None:
    found = NAMED.findall(MAP.read_text(encoding="utf-8"))
    files = [(path, name) for path, name in found if "." in path and not path.startswith((".", "cdc/"))]
    assert len(files) > 150
    for path, name in files:
        (file, *_) = [*(base / path for base in BASES if (base / path).is_file()), None]
        assert file is not None, path
        assert not name or name in names(file), (path, name)


def runs_in_all_only(path: Path, name: str) -> bool:
    """Return whether only ``--all`` runs any of a test's cases."""
    (test,) = [node for node in tree(path).body if isinstance(node, ast.FunctionDef) and node.name == name]
    marks = list(test.decorator_list)
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks += node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return "pytest.mark.exhaustive" in map(ast.unparse, marks)


def test_each_guarantee_has_tests_that_exist_and_says_which_the_gate_does_not_run() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    tests = TEST.findall(text)
    assert len(tests) > 80 and len(tests) == text.count("::test_"), "a test that is named otherwise"
    for shown, name, path, mark in tests:
        assert shown == path and (ROOT / "tests" / path).is_file(), path
        assert name in names(ROOT / "tests" / path), (path, name)
        assert bool(mark) == runs_in_all_only(ROOT / "tests" / path, name), (path, name)
    guaranteed = text.partition("## Each event once")[2].partition("## What is not guaranteed")[0]
    items = re.split(r"^\* ", guaranteed, flags=re.MULTILINE)[1:]
    assert len(items) > 30 and [item for item in items if not TEST.search(item)] == []


def test_the_ledger_of_the_map_is_what_it_says() -> None:
    """The code reads its records as the page does: batch 2 waits for writer 1."""
    lines = re.findall(r"^    ([\w/.-]+)\t(\{.*\})$", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    records = {key: value.encode() for key, value in lines}
    ledger = build_ledger_state(records)
    assert (
        ledger.plan is not None
        and ledger.plan.epoch == 2
        and {"plan", "outcome", writer_key(0), writer_key(1)} <= records.keys()
    )
    assert not ledger.complete() and ledger.missing_writers() == (1,)

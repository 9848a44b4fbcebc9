"""Draw requirements by chance, with the tests that carry their ids as marks (``pytest.mark.req``)."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping, Sequence
from pathlib import Path


def marked_tests(tests: Path) -> dict[str, list[str]]:
    """Return the tests that carry each requirement's id; the file where a mark is of several tests.

    Args:
        tests: The folder of all tests.
    """
    marked: dict[str, set[str]] = {}
    for path in sorted(tests.rglob("*.py")):
        text, file = path.read_text(encoding="utf-8"), path.relative_to(tests).as_posix()
        nodes = list(ast.walk(ast.parse(text))) if "pytest.mark.req" in text else []
        decorated = {
            part: f"{file}::{node.name}"
            for node in nodes
            if isinstance(node, ast.FunctionDef)
            for decorator in node.decorator_list
            for part in ast.walk(decorator)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        marked.setdefault(str(argument.value), set()).add(decorated.get(node, file))
    return {name: sorted(marked[name]) for name in sorted(marked)}


def draw(marked: Mapping[str, Sequence[str]], number: int, seed: int) -> list[tuple[str, Sequence[str]]]:
    """Return requirements with their tests; the same seed draws the same ones as long as the marks are the same.

    Args:
        marked: From ``marked_tests``.
        number: How many; all when there are fewer.
        seed: Of the random numbers.
    """
    ids = random.Random(seed).sample(sorted(marked), min(number, len(marked)))
    return [(name, marked[name]) for name in sorted(ids)]

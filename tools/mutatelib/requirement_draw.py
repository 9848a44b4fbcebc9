"""Draw requirements by chance, and find the edits that take their features out.

A test that carries a requirement's id as a mark (``pytest.mark.req``) says that it protects the feature. A row of the
mutant list with that id in ``requirements`` is the smallest edit that takes the feature out; its tests are marked ones.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutatelib.mutant import Mutant


@dataclass(frozen=True, slots=True)
class DrawnRequirement:
    """Hold one drawn requirement.

    Args:
        id: Its id, such as ``TYPE-12``.
        files: Test files that carry it as a mark, relative to ``tests``.
        mutants: The edits that take its feature out.
    """

    id: str
    files: tuple[str, ...]
    mutants: tuple[Mutant, ...]


def marked_requirements(tests: Path) -> dict[str, tuple[str, ...]]:
    """Return the test files, relative to the folder, that carry each id as a mark.

    Args:
        tests: The folder of all tests.
    """
    marked: dict[str, set[str]] = {}
    for path in sorted(tests.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        marked.setdefault(str(argument.value), set()).add(path.relative_to(tests).as_posix())
    return {name: tuple(sorted(files)) for name, files in sorted(marked.items())}


def draw(
    marked: dict[str, tuple[str, ...]], mutants: Sequence[Mutant], number: int, seed: int
) -> list[DrawnRequirement]:
    """Draw requirements; the same seed draws the same ones as long as the marks are the same.

    Args:
        marked: From ``marked_requirements``.
        mutants: The whole list.
        number: How many; all when there are fewer.
        seed: Of the random numbers.
    """
    ids = random.Random(seed).sample(sorted(marked), min(number, len(marked)))
    return [DrawnRequirement(i, marked[i], tuple(m for m in mutants if i in m.requirements)) for i in sorted(ids)]


def describe(drawn: Sequence[DrawnRequirement]) -> list[str]:
    """Return a line for each requirement that no edit of the list takes out.

    Args:
        drawn: The requirements.
    """
    return [f"{d.id}: no edit is written down; its marks: {' '.join(d.files)}" for d in drawn if not d.mutants]

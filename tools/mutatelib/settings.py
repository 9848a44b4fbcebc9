"""Cut each property off from the product (``tests/kit/cut_setting.py``), and see the test of its effect fail."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from mutatelib.mutant import REPOSITORY
from mutatelib.run import QUICK_S, SERVER_S, Verdict, judge, run_tests

LIST = Path("tests", "effects.toml")
VARIABLE = "MYSQL_CDC_CUT_SETTING"


def effects(root: Path = REPOSITORY) -> dict[str, str]:
    """Return the test of each property, relative to ``tests``.

    Args:
        root: The checkout.
    """
    listed = tomllib.loads((root / LIST).read_text(encoding="utf-8"))
    return {name: test for test, names in listed.items() for name in names}


def is_quick(test: str) -> bool:
    """Return whether a test needs no server."""
    return test.startswith("unit/")


def cut_each(chosen: dict[str, str]) -> Iterator[tuple[str, Verdict, str]]:
    """Cut one property after the other; yield its name, the verdict and what led to it.

    Args:
        chosen: The test of each.

    Raises:
        ValueError: A test fails without a cut.
    """
    tests = list(dict.fromkeys(chosen.values()))
    code, output = run_tests(REPOSITORY, tests, SERVER_S)
    if code:
        raise ValueError(f"without a cut, pytest ends with {code}:\n{output[-3000:]}")
    for name, test in chosen.items():
        limit_s = QUICK_S if is_quick(test) else SERVER_S
        yield name, *judge(*run_tests(REPOSITORY, [test], limit_s, "-x", environment={VARIABLE: name}))

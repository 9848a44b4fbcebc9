"""The list of mutants, and one mutant as a value."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LISTS = Path("tests/mutants")
PACKAGE = Path("airflow_provider_mysql_cdc")
QUICK = ("unit/", "golden/", "property/")
"""Folders of tests that need no server (tests/conftest.py)."""
_MEMBERS = {
    "name": str,
    "file": str,
    "out": str,
    "in": str,
    "breaks": str,
    "rows": list,
    "tests": list,
    "explained": str,
    "expects": str,
    "requirements": list,
}
EXPECTED = ("", "took too long", "errored")
"""Ends of the tests, other than a red test, that a row may take for a kill."""


class ListError(Exception):
    """Say what is wrong with the list of mutants."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """Describe one change of the product's text.

    Args:
        name: What is taken out, unique in the list.
        file: The file, relative to the package.
        out: The text taken out; it occurs in the file exactly once.
        put: The text put in its place.
        breaks: What it breaks: a requirement, or what would happen.
        rows: Rows of docs/fixed-faults.md that the protection closes.
        tests: Tests of which one goes red, relative to ``tests``.
        explained: Why no test can go red; such a mutant is not run.
        expects: How its tests end with it when none goes red by what it looks at: ``took too long`` for a mutant that
            hangs, ``errored`` for one that breaks a fixture.
        requirements: Ids of requirements whose feature this edit takes out; tests that carry the id as a mark go red.
    """

    name: str
    file: str
    out: str
    put: str
    breaks: str
    rows: tuple[int, ...] = ()
    tests: tuple[str, ...] = ()
    explained: str = ""
    expects: str = ""
    requirements: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Return the file, relative to the checkout."""
        return PACKAGE / self.file

    @property
    def quick(self) -> bool:
        """Whether its tests need no server."""
        return all(test.startswith(QUICK) for test in self.tests)

    def applied(self, text: str) -> str | None:
        """Return a file's text with the change made, or None when it does not apply.

        Args:
            text: The text of its file.
        """
        return text.replace(self.out, self.put) if text.count(self.out) == 1 and self.put != self.out else None


def load(root: Path = REPOSITORY) -> list[Mutant]:
    """Read the list.

    Args:
        root: The checkout.

    Raises:
        ListError: An entry is not of its form, or two have one name.
    """
    found: dict[str, Mutant] = {}
    for path in sorted((root / LISTS).glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise ListError(f"{path.name}: {error}") from error
        for entry in entries:
            mutant = _read(entry, path.name)
            if mutant.name in found:
                raise ListError(f"{path.name}: two mutants are called {mutant.name!r}")
            found[mutant.name] = mutant
    return list(found.values())


def _read(entry: Mapping[str, Any], where: str) -> Mutant:
    name = entry.get("name", entry.get("out", "?"))
    for member, value in entry.items():
        if member not in _MEMBERS or not isinstance(value, _MEMBERS[member]):
            raise ListError(f"{where}: {name}: member {member} is not known or not of its type")
    if missing := {"name", "file", "out", "in", "breaks"} - entry.keys():
        raise ListError(f"{where}: {name}: {', '.join(sorted(missing))} is missing")
    if bool(entry.get("tests")) == bool(entry.get("explained")):
        raise ListError(f"{where}: {name}: it needs either tests or an explanation")
    if entry.get("expects", "") not in EXPECTED:
        raise ListError(f"{where}: {name}: expects is one of: {', '.join(filter(None, EXPECTED))}")
    return Mutant(
        name,
        entry["file"],
        entry["out"],
        entry["in"],
        entry["breaks"],
        tuple(entry.get("rows", ())),
        tuple(entry.get("tests", ())),
        entry.get("explained", ""),
        entry.get("expects", ""),
        tuple(entry.get("requirements", ())),
    )

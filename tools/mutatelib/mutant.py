"""The list of mutants, and one mutant as a value."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LIST = Path("tests/mutants.toml")
PACKAGE = Path("airflow_provider_mysql_cdc")
QUICK = ("unit/", "golden/", "property/")
"""Folders of tests that need no server (tests/conftest.py)."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """Describe one change of the product's text that brings a fixed fault back.

    Args:
        file: The file, relative to the package.
        rows: Rows of docs/fixed-faults.md.
        breaks: What would happen.
        test: A test that fails, or a file of tests of which one does, relative to ``tests``.
        out: The text taken out; it occurs in the file exactly once.
        put: The text put in its place.
    """

    file: str
    rows: tuple[int, ...]
    breaks: str
    test: str
    out: str
    put: str

    @property
    def quick(self) -> bool:
        """Whether its test needs no server."""
        return self.test.startswith(QUICK)

    def changed(self, root: Path = REPOSITORY) -> str:
        """Return the text of its file with the change made.

        Args:
            root: The checkout.

        Raises:
            ValueError: The change cannot be made, or its test is not there.
        """
        path = root / PACKAGE / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(self.out) != 1 or self.put == self.out:
            raise ValueError(f"the file holds the text {text.count(self.out)} times: {self.out!r}")
        changed = text.replace(self.out, self.put)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{self.put!r} gives no Python: {error}") from error
        file, _, name = self.test.partition("::")
        tests = root / "tests" / file
        function = name.partition("[")[0].rpartition("::")[2]
        if not tests.is_file() or (name and f"def {function}(" not in tests.read_text(encoding="utf-8")):
            raise ValueError(f"there is no test {self.test}")
        return changed


def load(root: Path = REPOSITORY) -> list[Mutant]:
    """Read the list.

    Args:
        root: The checkout.

    Raises:
        ValueError: An entry has not the five members that the list's first lines name.
    """
    found = []
    for file, entries in tomllib.loads((root / LIST).read_text(encoding="utf-8")).items():
        for entry in entries:
            match entry:
                case [[*rows], str(breaks), str(test), str(out), str(put)]:
                    found.append(Mutant(file, tuple(rows), breaks, test, out, put))
                case _:
                    raise ValueError(f"{LIST}: {file}: not [rows, breaks, test, out, in]: {entry}")
    return found

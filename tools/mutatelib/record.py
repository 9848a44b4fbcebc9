"""Verdicts of earlier runs: a run can be done in pieces, and only what has changed is run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mutatelib.mutant import REPOSITORY, Mutant
from mutatelib.verdicts import Result


def verdict_key(mutant: Mutant, root: Path = REPOSITORY) -> str:
    """Return what a verdict rests on, as a hash: the mutated file, the row, and the files of its tests.

    A change of what these import is not seen; ``--again`` runs everything.

    Args:
        mutant: The mutant.
        root: The checkout.
    """
    files = dict.fromkeys(f"tests/{test.partition('::')[0]}" for test in mutant.tests)
    texts = [_text(root / file) for file in files]
    changed = mutant.applied(_text(root / mutant.path))
    row = [mutant.file, mutant.out, mutant.put, *mutant.tests, mutant.expects]
    return hashlib.sha256(json.dumps([row, changed, texts]).encode()).hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    key: str
    verdict: str
    killer: str = ""
    why: str = ""
    cpu_s: float = 0.0
    controlled: bool = False


class VerdictFile:
    """Keep verdicts in a file, a line of JSON for each; the last one of a name counts.

    Args:
        path: The file; made when it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._lines = {line.name: line for line in _read(lines)}

    def valid_result(self, mutant: Mutant) -> Result | None:
        """Return the verdict that still holds, or None. Only a kill is kept: whatever else is tried again.

        Args:
            mutant: The mutant.
        """
        line = self._lines.get(mutant.name)
        if line is None or line.verdict != "killed" or line.key != verdict_key(mutant):
            return None
        return Result(
            mutant,
            "killed",
            0.0,
            line.cpu_s,
            line.killer,
            line.why,
            key=line.key,
            controlled=line.controlled,
            recorded=True,
        )

    def killer(self, mutant: Mutant) -> str:
        """Return the test that killed a mutant the last time while its row names it, or nothing.

        Args:
            mutant: The mutant.
        """
        line = self._lines.get(mutant.name)
        killer = line.killer if line is not None else ""
        return killer if killer not in mutant.tests and killer.startswith(mutant.tests) else ""

    def add(self, result: Result) -> None:
        """Write a verdict down at once.

        Args:
            result: The result, with the key that its mutant had before it was made.
        """
        line = _Line(
            result.mutant.name,
            result.key,
            result.verdict,
            result.killer,
            result.why,
            round(result.cpu_s, 2),
            result.controlled,
        )
        self._lines[line.name] = line
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            members = {name: getattr(line, name) for name in _Line.__slots__}
            file.write(json.dumps(members) + "\n")


def _read(lines: Iterable[str]) -> Iterable[_Line]:
    for line in lines:
        try:
            yield _Line(**json.loads(line))
        except (ValueError, TypeError):  # an interrupted write, or another version's
            continue

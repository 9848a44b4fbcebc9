"""The list of explained differences: a table in Markdown that people read and the comparison obeys."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prooflib.differ import Difference
from prooflib.kinds import CONFIGURED, KINDS, holds
from prooflib.workload import ProofError

COLUMNS = ("case", "topic", "path", "kind", "reason")


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one row of the list.

    Args:
        case: Glob of ``workload/mode``, or of ``property=value`` of the recorded connector.
        topic: Glob of the topic.
        path: Glob of the JSON path.
        kind: Name of a kind (``kinds.KINDS``, ``kinds.CONFIGURED``), or ``any``.
        line: Line number in the file.
    """

    case: str
    topic: str
    path: str
    kind: str
    reason: str
    line: int

    def applies_to(self, case: str, settings: Mapping[str, str] | None = None) -> bool:
        """Return whether the entry speaks of a capture.

        Args:
            case: ``workload/mode`` of the recorded capture.
            settings: Properties of the recorded connector, as far as they are known.
        """
        return any(_like(self.case, c) for c in (case, *(f"{n}={v}" for n, v in (settings or {}).items())))

    def names(self, difference: Difference, settings: Mapping[str, str] | None = None) -> bool:
        """Return whether the entry, one of the difference's capture, explains it.

        Args:
            difference: The difference.
            settings: Properties of the recorded connector, as far as they are known.
        """
        return (
            _like(self.topic, difference.topic)
            and _like(self.path, difference.where)
            and holds(self.kind, difference, settings)
        )


def _like(glob: str, text: str) -> bool:
    return _pattern(glob).fullmatch(text) is not None


@functools.cache
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in glob.split("*")), re.DOTALL)


def parse_explained(lines: Iterable[str], name: str) -> list[Entry]:
    """Return the entries of every table whose head is ``case | topic | path | kind | reason``.

    Raises:
        ProofError: A row is not complete, or names an unknown kind.
    """
    entries, inside = [], False
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("|"):
            inside = False
            continue
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        cells = [c.replace("\\|", "|").strip("`") if i < len(COLUMNS) - 1 else c for i, c in enumerate(cells)]
        if tuple(c.lower() for c in cells) == COLUMNS:
            inside = True
        elif inside and not all(set(c) <= set("-: ") for c in cells):
            if len(cells) != len(COLUMNS) or not all(cells):
                raise ProofError(f"{name}, line {number}: a row has the cells {' | '.join(COLUMNS)}, none empty")
            if cells[3] not in {*KINDS, *CONFIGURED}:
                known = ", ".join(sorted({*KINDS, *CONFIGURED}))
                raise ProofError(f"{name}, line {number}: unknown kind {cells[3]!r}; known: {known}")
            case, topic, glob, kind, reason = cells
            entries.append(Entry(case, topic, glob, kind, reason, number))
    return entries


def read_explained(path: Path) -> list[Entry]:
    """Return the entries of a file."""
    return parse_explained(path.read_text(encoding="utf-8").splitlines(), path.name)

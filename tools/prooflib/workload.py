"""The workload format: SQL in sections, each begun by a line ``-- @kind [argument]``.

Kinds: ``setup`` runs before the snapshot; ``change`` runs while streaming, one client session a section; ``both`` runs
in both parts; ``wait N`` runs while streaming, in the recordings N seconds later, where a capture drains instead;
adjacent ``sessionX`` sections run at the same time; ``end`` runs when the pipeline has stopped. Text before the first
section is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("setup", "change", "both", "wait", "end")


class ProofError(Exception):
    """Say in one line why a capture or a comparison could not be made."""


@dataclass(frozen=True, slots=True)
class Section:
    """Hold one section of a workload.

    Args:
        kind: What follows the ``@``.
        argument: The word after it, or an empty text.
    """

    kind: str
    argument: str
    text: str

    @property
    def concurrent(self) -> bool:
        """Return whether the section runs at the same time as its neighbours."""
        return self.kind.startswith("session")


@dataclass(frozen=True, slots=True)
class Workload:
    """Hold a workload.

    Args:
        name: Its name: the file's without ``.sql``.
        sections: Its sections in order.
    """

    name: str
    sections: tuple[Section, ...]

    def sections_of(self, *kinds: str) -> Iterator[Section]:
        """Yield the sections of some kinds."""
        return (s for s in self.sections if s.kind in kinds)

    def streaming(self) -> list[list[Section]]:
        """Return what runs while streaming: groups of sections, those of one group at the same time."""
        groups: list[list[Section]] = []
        for section in self.sections:
            if section.concurrent and groups and groups[-1][0].concurrent:
                groups[-1].append(section)
            elif section.concurrent or section.kind in ("change", "both", "wait"):
                groups.append([section])
        return groups


def parse_workload(name: str, lines: Iterable[str]) -> Workload:
    """Return the workload that some lines hold.

    Raises:
        ProofError: A section's kind is unknown, or there is none.
    """
    sections: list[tuple[str, str, list[str]]] = []
    for line in lines:
        if line.startswith("-- @"):
            words = line[4:].split()
            kind = words[0] if words else ""
            if kind not in KINDS and not kind.startswith("session"):
                raise ProofError(f"{name}: unknown section @{kind}; known are {', '.join(KINDS)} and sessionX")
            sections.append((kind, words[1] if len(words) > 1 else "", []))
        elif sections:
            sections[-1][2].append(line)
    if not sections:
        raise ProofError(f'{name}: there is no section; one begins with a line like "-- @setup"')
    return Workload(name, tuple(Section(kind, argument, "".join(text)) for kind, argument, text in sections))


def read_workload(path: Path) -> Workload:
    """Return the workload of a file."""
    # Line ends become line feeds, as in the recordings: they are a part of the statements that the binlog holds.
    with path.open(encoding="utf-8-sig") as stream:
        return parse_workload(path.name.removesuffix(".sql"), stream)


def read_properties(path: Path) -> dict[str, str]:
    r"""Return the properties of a mode file, in Java's format (``java.util.Properties``), in which Connect reads them.

    ``#`` or ``!`` begins a comment line; a backslash at the end of a line joins the next one to it, elsewhere it
    escapes a special character and is dropped: the regular expression ``d\.t`` is written with two backslashes.
    """
    found = {}
    lines = iter(path.read_text(encoding="utf-8-sig").splitlines())
    for line in lines:
        text = line.lstrip()
        if not text or text[0] in "#!":
            continue
        while (len(text) - len(text.rstrip("\\"))) % 2:
            text = text[:-1] + next(lines, "").lstrip()
        match = _PROPERTY.fullmatch(text)
        assert match is not None
        name, value = (_ESCAPED.sub(_unescaped, part) for part in match.groups())
        found[name] = value.rstrip()
    return found


_PROPERTY = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _CONTROL.get(character, character)

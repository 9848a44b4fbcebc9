"""Statements about tables in SQL files, as dumps and migrations of other projects have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_PIECE = re.compile(
    r"""(?P<delimiter>^[ \t]*DELIMITER[ \t]+(?P<mark>\S+)[^\n]*)"""
    r"""|(?P<quoted>'(?:[^'\\]|''|\\.)*+'|"(?:[^"\\]|""|\\.)*+"|`[^`]*+`)"""
    r"""|(?P<comment>/\*(?!!).*?\*/|(?:\#|--(?=\s|$))[^\n]*)"""
    r"""|(?P<text>.)""",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_ABOUT_TABLES = re.compile(
    r"(?:/\*!\d*\s*)?(?:CREATE\s+TABLE|(?:ALTER|DROP|RENAME|TRUNCATE)\s+TABLE|DROP\s+INDEX"
    r"|CREATE\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL)\s+)?INDEX)\b",
    re.IGNORECASE,
)


# Only the server itself writes such a statement; another one may not follow in its session.
_OF_SELECT = re.compile(r"\bSTART\s+TRANSACTION\b", re.IGNORECASE)


def files_below(folder: Path) -> list[Path]:
    """Return the SQL files of a folder and those below it."""
    return sorted(path for path in folder.rglob("*.sql") if path.is_file())


def statements_about_tables(path: Path) -> list[str]:
    """Return the statements of a file that can change a table's structure, in order."""
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return [each for each in _split(text) if _ABOUT_TABLES.match(each) and not _OF_SELECT.search(each)]


def _split(text: str) -> Iterator[str]:
    """Yield the statements of a text, without comments in front, as the mysql client finds them."""
    mark, pieces, position = ";", list[str](), 0
    while position < len(text):
        match = _PIECE.match(text, position)
        assert match is not None
        if text.startswith(mark, position) and match["quoted"] is None:
            yield "".join(pieces).strip()
            pieces, position = [], position + len(mark)
            continue
        position = match.end()
        if match["delimiter"] is not None and not "".join(pieces).strip():
            mark, pieces = match["mark"], []
        elif match["comment"] is None or not all(map(str.isspace, pieces)):
            pieces.append(match.group())
    yield "".join(pieces).strip()

"""Sentences of the documentation, as a reader meets them: without code, links' targets and the markup of tables."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) |#)|\n(?=\|)|(?<=\|)\n|(?<=:)\n")
_END = re.compile(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*\"(\[])")


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page: of paragraphs, items and cells.

    Args:
        markdown: The page.
    """
    found: list[str] = []
    for block in _BREAK.split(_FENCE.sub("", markdown)):
        if block.startswith(("    ", "[", "<!--")):
            continue
        for cell in block.split(" | ") if block.startswith("|") else [block]:
            text = " ".join(re.sub(r"\]\([^)]*\)", "]", cell).split())
            found += _END.split(text)
    return found

"""A hook of MkDocs: pages are written for GitHub, whose Markdown differs from Python-Markdown's in lists and links."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_MARKER = re.compile(r"( *)((?:[*-]|\d+\.) +)(?=\S)")
_LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s]*)(?=\))")
_FENCE = re.compile(r" *(```|~~~)")
_COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
ITEM_INDENT = 4
"""What Python-Markdown wants before the second and further lines of an item; GitHub takes the width of the marker."""


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page as Python-Markdown reads it.

    Args:
        markdown: The page.
        page: MkDocs' page.
        config: MkDocs' configuration.
    """
    text = _COMMENT.sub("\n", markdown)
    return indent_lists(_LINK.sub(lambda link: link[1] + to_repository(link[2], page.file.src_uri, config), text))


def to_repository(link: str, page: str, config: Any) -> str:
    """Return a relative link, or the address in the repository if it leads out of the folder of the pages.

    Args:
        link: The link, beginning with ``../``.
        page: Path of the page in that folder.
        config: MkDocs' configuration.
    """
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if not target.startswith("../"):
        return link
    return f"{config.repo_url.rstrip('/')}/blob/main/{target.removeprefix('../')}"


def indent_lists(markdown: str) -> str:
    """Return a page whose items go on with four spaces, and whose lists have an empty line before them.

    Args:
        markdown: The page.
    """
    lines: list[str] = []
    columns: list[int] = []  # where the text of each open item begins in the page
    fence, was_text = "", False
    for line in markdown.splitlines():
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            lines.append("")
            was_text = False
            continue
        while columns and not fence and indent < columns[-1]:
            columns.pop()
        own = line[min(columns[-1], indent) :] if columns else line
        marker = None if fence else _MARKER.match(own)
        if marker:
            if was_text and not columns:
                lines.append("")
            lines.append(" " * ITEM_INDENT * len(columns) + own.lstrip())
            columns.append((columns[-1] if columns else 0) + marker.end())
        else:
            lines.append(" " * ITEM_INDENT * len(columns) + own.rstrip())
        if mark := _FENCE.match(own):
            fence = "" if fence else mark[1]
        was_text = not (marker or columns or fence) and not line.startswith(("|", "#", "    "))
    return "\n".join(lines) + "\n"

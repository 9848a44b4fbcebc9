"""Code blocks of the documentation, for the tests that run them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("quickstart", "concepts", "airflow", "fleets", "verify", "alarms", "limits")),
    *(f"docs/{name}.md" for name in ("from-debezium", "transforms")),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guides").glob("*.md")),
)
"""Pages of which every block is run, or says in a comment before it why not: ``<!-- not run: the reason -->``."""
_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.+?) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Args:
        page: Path of its page in the checkout.
        line: Where it begins there.
        language: What stands behind the fence.
        text: The code.
        reason: Why no test runs it; empty if one does.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, language: str = "") -> list[Block]:
    """Return the blocks of a page, of one language or all, without those that are not run.

    Args:
        page: Its path in the checkout.
        language: The language; empty for all, and then also those that are not run.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [
        Block(
            page,
            text.count("\n", 0, match.start("indent")) + 1,
            match["language"],
            re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            match["reason"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]
    return [block for block in found if not language or (block.language == language and not block.reason)]


def of_all_pages(language: str) -> list[Block]:
    """Return the blocks of one language of all pages.

    Args:
        language: The language.
    """
    return [block for page in RUN_PAGES for block in blocks(page, language)]


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a shell block, each as its words.

    Args:
        block: The block.
    """
    found: list[list[str]] = []
    waiting = ""
    for line in block.text.splitlines():
        waiting += line.removesuffix("\\") if line.endswith("\\") else line + "\n"
        try:
            words = shlex.split(waiting, comments=True)
        except ValueError:  # a quote is open
            continue
        if not line.endswith("\\"):
            found += [words] if words else []
            waiting = ""
    assert not waiting.strip(), f"{block}: {waiting}"
    return found

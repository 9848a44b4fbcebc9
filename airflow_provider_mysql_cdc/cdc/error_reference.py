"""Write the table of errors in docs/runbook.md: ``python -m airflow_provider_mysql_cdc.cdc.error_reference FILE``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ERROR_TYPES, CdcError

BEGIN = "<!-- errors, written by airflow_provider_mysql_cdc.cdc.error_reference -->"
END = "<!-- end of errors -->"
_ENTRY = re.compile(r"^### ([^\n]+)\n\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_REQUIREMENTS = re.compile(r" \([A-Z]+-\d+(?:, [A-Z]+-\d+)*\)")
# Properties, settings and DAGs, with a value: names with a dot or an underscore inside.
_NAME = re.compile(r"\b[a-z]+(?:[._][a-z]+)+(?:=\w+)?")


def render(page: str) -> str:
    """Return the page with the current table between its marks.

    Args:
        page: The text of docs/runbook.md.
    """
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    entries = _ENTRY.findall(page[end:])
    header = ["", "| error | when | what to do | a retry helps | entries |", "|---|---|---|---|---|"]
    return (
        page[:begin] + "\n".join([*header, *(_row(error, entries) for error in ERROR_TYPES.values()), ""]) + page[end:]
    )


def _row(error: type[CdcError], entries: list[tuple[str, str]]) -> str:
    when = _REQUIREMENTS.sub("", (error.__doc__ or "").split("\n")[0]).rstrip(".")
    links = [f"[{_title(heading)}](#{anchor(heading)})" for heading, text in entries if f"`{error.__name__}`" in text]
    name = f'<a id="{error.__name__.lower()}"></a>`{error.__name__}`'
    cells = [name, when, _NAME.sub(r"`\g<0>`", error.advice), "yes" if error.retriable else "no"]
    return f"| {' | '.join([*cells, ', '.join(links)])} |"


def _title(heading: str) -> str:
    return heading.replace("`", "").removeprefix("... ")


def anchor(heading: str) -> str:
    """Return the name under which GitHub links a heading.

    Args:
        heading: Its text.
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(render(target.read_text(encoding="utf-8")), encoding="utf-8")

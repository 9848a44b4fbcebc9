"""Render docs/reference/commands.md from the parser: ``python -m sitelib.commands_page docs/reference/commands.md``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from airflow_provider_mysql_cdc.commands.program import command_line

_HEADER = """# Commands

Generated from the parser of `mysql-cdc`; write it again with
`PYTHONPATH=tools python -m sitelib.commands_page docs/reference/commands.md`.

With `--mysql-cdc-conn-id` a command needs Airflow, and reads connections as `airflow connections get` does. With
`--properties` or variables `MYSQL_CDC_*` it needs none. Commands print a document to standard output and everything
else to standard error. The exit code is 0 for success, 1 for an error with a name, 2 for a wrong command line.
"""


def render() -> str:
    """Return the page."""
    return "\n".join([_HEADER, *_sections(command_line(), "mysql-cdc")])


def _sections(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub, child in action.choices.items():
                yield from _command(child, f"{name} {sub}")
                yield from _sections(child, f"{name} {sub}")


def _command(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    yield f"{'#' * name.count(' ')}# `{name}`\n"
    if parser.description:
        yield f"{parser.description}\n"
    rows = [_row(parser, action) for action in parser._actions if not _is_hidden(action)]
    if rows:
        yield "\n".join(["| option | |", "|---|---|", *rows]) + "\n"


def _is_hidden(action: argparse.Action) -> bool:
    return isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "")
    if not value and action.option_strings and action.nargs != 0:
        value = action.dest.upper()
    text = (action.help or "") % {"default": action.default, "prog": parser.prog, "metavar": action.metavar}
    shown = f"{names} {value}" if action.option_strings and value else names
    cells = (f"`{shown}`{' (required)' if action.required else ''}", text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")

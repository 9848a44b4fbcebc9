"""Parsers of the options of transforms; each raises ``ValueError`` that says what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.expression import Expression, java_expression
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option

_WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


def required_text(text: str) -> str:
    """Return the text, blanks included; it must not be empty."""
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def flag(text: str) -> bool:
    """Return True or False for ``true`` and ``false`` in any case."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def whole_number(text: str) -> int:
    """Return a whole number of 32 bits."""
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise ValueError("must be a whole number")
    number = int(text)
    if not -(2**31) <= number < 2**31:
        raise ValueError("must be a whole number of 32 bits")
    return number


def positive_number(text: str) -> int:
    """Return a whole number above 0."""
    if (number := whole_number(text)) <= 0:
        raise ValueError("must be a whole number above 0")
    return number


def names(text: str) -> tuple[str, ...]:
    """Return the entries of a list, separated by commas."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def required_names(text: str) -> tuple[str, ...]:
    """Return the entries of a list that must have one."""
    if not (entries := names(text)):
        raise ValueError("must have at least one entry")
    return entries


def pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return the entries of a list of ``one:other``."""
    entries = [tuple(entry.rstrip(":").split(":")) for entry in names(text)]
    if any(len(entry) != 2 for entry in entries):
        raise ValueError("must be a list of pairs such as old:new")
    return tuple((entry[0], entry[1]) for entry in entries)


def one_of(*texts: str, any_case: bool = False) -> Callable[[str], str]:
    """Return a parser of one of some texts.

    Args:
        texts: The texts.
        any_case: Whether letters count without case.
    """

    def parse(text: str) -> str:
        stripped = text.strip()
        for choice in texts:
            if choice == stripped or (any_case and choice.lower() == stripped.lower()):
                return choice
        raise ValueError(f"must be one of {', '.join(texts)}")

    return parse


def expression(text: str) -> Expression:
    """Return a regular expression that distinguishes upper and lower case."""
    return java_expression(text, ignore_case=False)


def required_expression(text: str) -> Expression:
    """Return a regular expression that is not empty."""
    return expression(required_text(text))


NULL_DEFAULT: Mapping[str, Option] = {
    "replace.null.with.default": Option(flag, "whether NULL becomes the column's default; default `true`", True)
}


def read_defaults(options: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each option, given or not."""
    return {name: values.get(name, option.default) for name, option in options.items()}

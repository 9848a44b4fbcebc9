r"""Regular expressions of a configuration, with an end to the time they take.

Users write Java's dialect. What Java and Python read alike is accepted: Python's ``re`` decides that, and the package
``regex``, which reads the same dialect, does the matching, because it can stop after a time. A backtracking engine,
Java's as well, needs more than a lifetime for ``(a|aa)+$`` and sixty letters; engines without backtracking (RE2) have
no lookahead, which include lists use (``^(?!tmp_).*``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import regex

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

MATCH_SECONDS = 0.25
"""CPU time one match may take; an ordinary one takes microseconds."""
TOTAL_SECONDS = 1.0
"""CPU time that the slow matches of one expression may take together."""
SLOW_SECONDS = 0.01
MAX_LENGTH = 100_000
MAX_DEPTH = 100
MAX_QUANTIFIERS = 1_000
MAX_REPEATS = 100_000
"""Bound of all counts of an expression multiplied; ``regex`` writes counted repetitions out."""

# In a set: an escape, or what Java reads as a set operation or nested set and Python, with a warning, as characters.
_SET_OPERATION = re.compile(r"\\.|(\[|&&|--|~~|\|\|)", re.DOTALL)
_JAVA_QUOTE = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_JAVA_GROUP = re.compile(r"\(\?<(?=[a-zA-Z])")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?|\{(\d+)(?:,(\d*))?\}|[(){*+?]", re.DOTALL | re.ASCII)


class Expression:
    """Match one regular expression.

    Args:
        text: The expression, in Python's dialect.
        original: The expression as it was written.
        ignore_case: Whether ASCII letters match without case.

    Raises:
        ValueError: It is wrong, means something else to Python than to Java, or is too large.
    """

    __slots__ = ("_compiled", "_slow_seconds", "_source", "groupindex", "groups", "ignore_case", "text")

    def __init__(self, text: str, original: str = "", *, ignore_case: bool = True) -> None:
        self.text, self.ignore_case = original or text, ignore_case
        self._source, self._slow_seconds = text, 0.0
        self._compiled = _compile(text, self.text, ignore_case)
        self.groups: int = self._compiled.groups
        self.groupindex: dict[str, int] = dict(self._compiled.groupindex)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._source, self.text, self.ignore_case)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and (self.text, self.ignore_case) == (other.text, other.ignore_case)

    def __hash__(self) -> int:
        return hash((self.text, self.ignore_case))

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """Return the match of a whole name, or None.

        Args:
            name: The name.

        Raises:
            ConfigError: It takes too long.
        """
        return self._match_with_timeout(self._compiled.fullmatch, name)

    def search(self, name: str) -> re.Match[str] | None:
        """Return the first match inside a name, or None.

        Args:
            name: The name.

        Raises:
            ConfigError: It takes too long.
        """
        return self._match_with_timeout(self._compiled.search, name)

    def _match_with_timeout(self, match: Callable[..., re.Match[str] | None], name: str) -> re.Match[str] | None:
        started = time.thread_time()
        while True:
            try:
                # Its time limit counts the CPU of all threads; those of Python wait as long as it keeps the GIL.
                result = match(name, timeout=MATCH_SECONDS, concurrent=False)
                break
            except TimeoutError:
                if time.thread_time() - started >= MATCH_SECONDS / 2:
                    raise self._too_slow_error(name) from None
            except MemoryError:
                raise self._too_slow_error(name) from None
        if (elapsed := time.thread_time() - started) > SLOW_SECONDS:
            self._slow_seconds += elapsed
            if self._slow_seconds > TOTAL_SECONDS:
                raise self._too_slow_error(name)
        return result

    def _too_slow_error(self, name: str) -> ConfigError:
        return ConfigError(
            "a regular expression of the configuration takes too long",
            where=f"{_shorten(self.text)} against the name {_shorten(name)}",
            why="it repeats what repeats, as (a+)+ does, so that the ways to match a name multiply",
            remedy="write it without a repetition inside a repetition, for example [a-z_]+ for ([a-z]+_?)+",
        )


def java_expression(expression: str, *, ignore_case: bool = True) -> Expression:
    r"""Compile one Java regular expression; ``\Q..\E`` and named groups are translated, the rest must be common ground.

    Args:
        expression: The expression.
        ignore_case: Whether ASCII letters match without case.

    Raises:
        ValueError: The expression is wrong, or means something else to Python than to Java.
    """
    translated = _JAVA_QUOTE.sub(lambda m: re.escape(m[1]), expression)
    return Expression(_JAVA_GROUP.sub("(?P<", translated), expression, ignore_case=ignore_case)


def _restore(text: str, original: str, ignore_case: bool) -> Expression:
    return Expression(text, original, ignore_case=ignore_case)


def _compile(text: str, original: str, ignore_case: bool) -> Any:
    def refuse(why: object) -> ValueError:
        return ValueError(f"the regular expression {_shorten(original)} cannot be used: {why}")

    if why := _refusal_reason(text):
        raise refuse(why)
    flags = regex.VERSION0 | regex.ASCII | (regex.IGNORECASE if ignore_case else 0)
    try:
        re.compile(text, re.ASCII)
        return regex.compile(text, flags, cache_pattern=False)
    except (re.error, regex.error, OverflowError, RecursionError, MemoryError, ValueError) as error:
        raise refuse(error) from None


def _refusal_reason(text: str) -> str:
    """Return why an expression is not even compiled, or nothing; whatever Python would warn of is among it."""
    if len(text) > MAX_LENGTH:
        return f"it has more than {MAX_LENGTH} characters; write several, separated by commas"
    depth = deepest = quantifiers = 0
    repeats = 1
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            # Java refuses it; ``regex`` would read some forms as a fuzzy match.
            return r"a brace begins no repetition; write \{ for the character"
        quantifiers += token[1] is not None or token[0] in "*+?"
        if token[0][0] == "[" and any(part[1] for part in _SET_OPERATION.finditer(token[0], 1)):
            return r"a set holds [, &&, --, ~~ or ||, which other dialects take for an operation; write \[ and so on"
        if token[0] in "()":
            depth += 1 if token[0] == "(" else -1
            deepest = max(deepest, depth)
        elif token[1]:
            if len(token[0]) > 16:
                return "a repetition's count is too large"
            repeats *= max(1, int(token[1]), int(token[2] or 0))
    if deepest > MAX_DEPTH:
        return f"its groups are nested more than {MAX_DEPTH} deep"
    if quantifiers > MAX_QUANTIFIERS:
        return f"it has more than {MAX_QUANTIFIERS} repetitions; write several expressions, separated by commas"
    return "its repetitions multiply to too large a number" if repeats > MAX_REPEATS else ""


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")

"""What all transforms share: the record, the part of it they work on, options, predicates, and their chain."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from airflow_provider_mysql_cdc.cdc.model.expression import Expression, java_expression
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema, TransformFault


class ChainHeader(NamedTuple):
    """A header with its schema."""

    name: str
    schema: RecordSchema | None
    value: Any


@dataclass(slots=True)
class ChainRecord:
    """A record that a transform may change; each record is read anew, so that nobody else has it.

    Args:
        topic: Its topic.
        partition: Its partition; None leaves that to the hash of the key.
        key_schema: Schema of its key; None without one.
        key: Its key.
        value_schema: Schema of its value; None without one.
        value: Its value; None for a tombstone.
        headers: Its headers.
        timestamp: Milliseconds since 1970; None for the time at which it is produced.
    """

    topic: str
    partition: int | None
    key_schema: RecordSchema | None
    key: Any
    value_schema: RecordSchema | None
    value: Any
    headers: list[ChainHeader] = field(default_factory=list)
    timestamp: int | None = None

    def set_value(self, schema: RecordSchema | None, value: Any) -> ChainRecord:
        """Replace the value, and return the record."""
        self.value_schema, self.value = schema, value
        return self

    def set_key(self, schema: RecordSchema | None, key: Any) -> ChainRecord:
        """Replace the key, and return the record."""
        self.key_schema, self.key = schema, key
        return self

    def header(self, name: str) -> ChainHeader | None:
        """Return the first header of a name, or None."""
        return next((header for header in self.headers if header.name == name), None)


MAX_CACHED_SCHEMAS: Final = 1024
"""Schemas of which a transform remembers what it makes of them."""
KeyT = TypeVar("KeyT", bound=Hashable)
MadeT = TypeVar("MadeT")


class OptionError(ValueError):
    """Options of a transform do not go together.

    Args:
        option: The option to be named.
        what: What is wrong with it.
        fix: What to do.
    """

    def __init__(self, option: str, what: str, fix: str = "Correct the value") -> None:
        super().__init__(what)
        self.option, self.what, self.fix = option, what, fix


@dataclass(frozen=True, slots=True)
class Option:
    """Declare an option of a transform or predicate.

    Args:
        parse: Returns the value of a text; raises ``ValueError``.
        doc: Words for the reference page.
        default: The value where it is not given.
        required: Whether it must be given.
    """

    parse: Callable[[str], Any]
    doc: str
    default: Any = None
    required: bool = False


class Transform(ABC):
    """Change the records of a chain.

    Args:
        options: Values of its options, defaults included.

    Raises:
        OptionError: Options do not go together.
    """

    DOC: ClassVar[str]
    """Words for the reference page."""
    OPTIONS: ClassVar[Mapping[str, Option]] = {}
    NO_EFFECT: ClassVar[Mapping[str, str]] = {}
    """Options that are accepted, with the reason why they do nothing."""
    FORMER: ClassVar[Mapping[str, str]] = {}
    """Options of older releases, which Debezium 3.6 ignores, with what to write today."""

    @abstractmethod
    def __init__(self, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Return the record that takes this one's place, or None to drop it.

        Args:
            record: The record, which may be changed.

        Raises:
            TransformFault: It cannot take the record.
        """


class PartTransform(Transform):
    """Change the key or the value of records.

    Attributes:
        part: ``key`` or ``value``; the classes for the two are named ``...$Key`` and ``...$Value``.
    """

    part: str = "value"

    def read(self, record: ChainRecord) -> tuple[RecordSchema | None, Any]:
        """Return schema and value of the part."""
        return (record.key_schema, record.key) if self.part == "key" else (record.value_schema, record.value)

    def write(self, record: ChainRecord, schema: RecordSchema | None, value: Any) -> ChainRecord:
        """Replace the part, and return the record."""
        return (record.set_key if self.part == "key" else record.set_value)(schema, value)


class SchemaCache(Generic[KeyT, MadeT]):
    """Remember what is made of each schema, or of a schema and more.

    Args:
        make: Makes it; never None.
    """

    def __init__(self, make: Callable[[KeyT], MadeT]) -> None:
        self._make = make
        self._made: dict[KeyT, MadeT] = {}

    def __call__(self, key: KeyT) -> MadeT:
        """Return it, made at the first call."""
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= MAX_CACHED_SCHEMAS:
                self._made.clear()
            made = self._made[key] = self._make(key)
        return made


class Predicate(ABC):
    """Select records.

    Args:
        options: Values of its options.
    """

    DOC: ClassVar[str]
    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    @abstractmethod
    def __init__(self, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""


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


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One transform of a chain.

    Args:
        name: Its name in ``transforms``.
        transform: The transform.
        predicate: Selects the records that it gets; None for all.
        negated: Whether it gets the others.
    """

    name: str
    transform: Transform
    predicate: Predicate | None = None
    negated: bool = False

    def applies(self, record: ChainRecord) -> bool:
        """Return whether it gets a record."""
        return self.predicate is None or self.predicate.test(record) != self.negated


class StepFault(Exception):
    """A transform of a chain cannot take a record.

    Args:
        step: The transform's name.
        fault: Why.
    """

    def __init__(self, step: str, fault: TransformFault) -> None:
        super().__init__(str(fault))
        self.step, self.why, self.hint = step, str(fault), fault.hint


@dataclass(frozen=True, slots=True)
class TransformChain:
    """Apply transforms in their order.

    Args:
        steps: The transforms.
    """

    steps: Sequence[ChainStep]

    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Return what is produced in place of a record; None where a transform drops it.

        Args:
            record: The record.

        Raises:
            StepFault: A transform cannot take it.
        """
        current: ChainRecord | None = record
        for step in self.steps:
            assert current is not None
            if not step.applies(current):
                continue
            try:
                current = step.transform.apply(current)
            except TransformFault as fault:
                raise StepFault(step.name, fault) from fault
            if current is None:
                return None
        return current

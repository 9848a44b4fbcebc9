"""A property is declared once, as a value.

Validation, defaults, the reference page, the JSON schema and the connection form all read the same ``Field``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from airflow_provider_mysql_cdc.cdc.config.property_names import HIDDEN, hide_salt, redact
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

T = TypeVar("T")
S = TypeVar("S")

MAX_SHOWN_LENGTH = 100
"""Characters of a value that a message shows at most."""
SHORTEST_HIDDEN_WORD = 4
"""Characters of a word of a private value that is hidden in running text; quotations are hidden at any length."""
_SEPARATOR = re.compile(r"[\s,;='\"]+")
_CLASS_NAME = re.compile(r"(?:transforms|predicates)\.[^.]+\.type")
_IDENTIFIER = re.compile(r"(?:[a-z_]\w*\.)+[A-Z]\w*(?:\$\w+)?")
"""A Java class that a transform names is no secret, and the error is about it."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class Group(StrEnum):
    """Chapters of the reference page, in its order."""

    CONNECTOR = "Connector"
    CONNECTION = "MySQL connection"
    TLS = "MySQL connection: TLS"
    FILTERS = "What is captured"
    SNAPSHOT = "Snapshot"
    EVENTS = "Events and values"
    COLUMNS = "Columns"
    SERIALIZATION = "Serialisation"
    REGISTRY = "Avro and the schema registry"
    TICDC = "TiCDC's Avro protocol"
    TOPICS = "Topics"
    HISTORY = "Schema history and schema changes"
    SIGNALS = "Signals, incremental snapshots and notifications"
    KAFKA = "Kafka"
    DRAIN = "Draining and committing"
    VERIFY = "Verify and repair"


class PinScope(StrEnum):
    """What a property decides, and so what it must not change in once that has begun (``config.pinned_properties``)."""

    EVENTS = "events"
    """Which records exist, how their keys and values look, or where they go: fixed inside a batch and a snapshot."""
    SNAPSHOT = "snapshot"
    """The same, of a snapshot's records only."""
    NOTHING = "nothing"
    """How to connect, how long to wait, how much at once, what is logged; or the way out of an error that nothing else
    ends, where what was passed before cannot be another."""


class SetBy(StrEnum):
    """Who may set a property beside those who come before (``config.property_sources``)."""

    CONNECTION = "connection"
    """Secrets: connections and the environment alone."""
    AUTHOR = "author"
    """Where the stream goes and who connects: hosts, accounts, TLS, files, classes, topics, SQL, what hides columns.
    The author of the DAG may set it too."""
    RUN = "run"
    """What is captured and how. Whoever triggers a run may set it too."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Describe one thing that is wrong with a configuration.

    Args:
        name: The property; a salt in it becomes ``***``.
        what: What is wrong with it.
        fix: What to do.
        value: Its value as given, or None when it is missing; a secret becomes ``***``.
    """

    name: str
    what: str
    fix: str
    value: str | None = None

    def __post_init__(self) -> None:
        if self.value is not None:
            object.__setattr__(self, "value", redact(self.name, self.value))
        object.__setattr__(self, "name", hide_salt(self.name))

    def __str__(self) -> str:
        start = self.name if self.value is None else f"{self.name}={self.short_value()}"
        return f"{start}: {self.what}. {self.fix.rstrip('.')}."

    def without_values(self, values: Mapping[str, str]) -> Problem:
        """Return the problem without its value, and without parts of values in its text.

        Quotations of any of the values become ``***``, and so do words of the property's own value and of those beside
        it (``isbn.type`` and ``isbn.*``), which the text of a converter's exception may hold.

        Args:
            values: Values that must not be shown, by property name.
        """
        family = self.name.rpartition(".")[0] + "."
        words = {name: {value, value.strip(), *_SEPARATOR.split(value)} for name, value in values.items()}
        if _CLASS_NAME.fullmatch(self.name) and _IDENTIFIER.fullmatch(self.value or ""):
            return self
        own = {word for name, its in words.items() if name == self.name or name.startswith(family) for word in its}
        everywhere = {word for its in words.values() for word in its if word}
        what = _QUOTED.sub(lambda quoted: repr(HIDDEN) if quoted[0][1:-1] in everywhere else quoted[0], self.what)
        for word in sorted((word for word in own if len(word) >= SHORTEST_HIDDEN_WORD), key=len, reverse=True):
            what = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", HIDDEN, what)
        return replace(self, what=what, value=None if self.value is None else HIDDEN)

    def short_value(self) -> str:
        """Return the value in quotes, cut where it is long."""
        value = self.value or ""
        return repr(
            value if len(value) <= MAX_SHOWN_LENGTH else f"{value[:MAX_SHOWN_LENGTH]}... ({len(value)} characters)"
        )


@dataclass(frozen=True, slots=True)
class Alias:
    """Name a property's older or other spelling.

    Args:
        name: The other property name.
        convert: Turns the other property's value into this one's; raises ``ValueError`` with what to do instead.
    """

    name: str
    convert: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Field(Generic[T]):
    """Declare one property.

    Args:
        name: Property name (Debezium's or Kafka Connect's where one exists).
        parse: Turns the text into the value; raises ``ValueError`` that says what is expected.
        default: Value when the property is absent (of no meaning when ``required`` or ``derive`` is set).
        doc: What the property does, for the reference page.
        group: Chapter of the reference page.
        aliases: Other names that are accepted, and reported in ``ConnectorConfig.notes``.
        validators: Checks of the parsed value; each raises ``ValueError``.
        required: Whether the property must be given.
        secret: Whether the value must never be shown.
        enum: Accepted values with their meaning, or None.
        refused: Values that Debezium knows and this release does not support, with the reason.
        derive: Computes the value of an absent property from the others; ``derived_from`` says how in words.
        derived_from: Words for the reference page.
        provider_specific: Whether the property is this provider's own (neither Debezium nor Kafka Connect knows it).
        refs: Ids of the requirements it meets.
        pending: Why nothing but the default is supported yet, or empty.
        pin_scope: What must not be begun under one value and finished under another; a new property decides events
            until somebody says otherwise.
        set_by: Who may set the property; a new property is its author's until somebody says otherwise.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    doc: str
    group: Group
    aliases: tuple[str | Alias, ...] = ()
    validators: tuple[Callable[[T], None], ...] = ()
    required: bool = False
    secret: bool = False
    enum: Mapping[str, str] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    derive: Callable[[Lookup], T] | None = None
    derived_from: str = ""
    provider_specific: bool = False
    refs: tuple[str, ...] = ()
    pending: str = ""
    pin_scope: PinScope = PinScope.EVENTS
    set_by: SetBy = SetBy.AUTHOR

    def __post_init__(self) -> None:
        if self.secret:
            object.__setattr__(self, "set_by", SetBy.CONNECTION)

    def read(self, text: str) -> T:
        """Return the value that ``text`` stands for.

        Raises:
            ValueError: The text is not a value of this property; the message says what is expected.
        """
        if (reason := self.refused.get(text.strip().lower())) is not None:
            raise ValueError(f"not supported yet: {reason}")
        value = self.parse(text)
        for check in self.validators:
            check(value)
        if self.pending and value != self.default:
            raise ValueError(f"not supported yet: {self.pending}")
        return value

    def redact(self, text: str | None) -> str | None:
        """Return the text as it may be shown."""
        return HIDDEN if self.secret and text is not None else text

    def alias_list(self) -> tuple[Alias, ...]:
        """Return the aliases, the plain names too, as ``Alias`` values."""
        return tuple(a if isinstance(a, Alias) else Alias(a) for a in self.aliases)

    def default_text(self) -> str:
        """Return the default as the reference page shows it."""
        if self.required:
            return "(required)"
        if self.derive is not None:
            return self.derived_from
        return display_text(self.default)


class Lookup:
    """Read typed values of other properties; given to ``Field.derive``.

    Args:
        values: Parsed values by property name.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, declared: Field[S]) -> S:
        if declared.name in self._values:
            value: S = self._values[declared.name]
            return value
        if declared.derive is not None:
            return declared.derive(self)
        return declared.default

    def is_set(self, declared: Field[Any]) -> bool:
        """Say whether the property was given."""
        return declared.name in self._values


def display_text(value: object) -> str:
    """Return a value as property text; a secret becomes ``***``, None the empty string."""
    if value is None:
        return ""
    if isinstance(value, Secret):
        return HIDDEN if value else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, frozenset)):
        return ",".join(sorted(map(str, value)) if isinstance(value, frozenset) else map(str, value))
    return str(value)

"""What all transforms and predicates share: their options, and the part of the record they work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema

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

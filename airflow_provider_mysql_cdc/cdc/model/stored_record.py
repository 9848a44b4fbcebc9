"""Write and read the records of a stream; what is wrong with one is named.

A value that is written somewhere and read back (ledger, offset store, job spec, messages of tasks) is a dataclass that
derives from ``Record``: its fields are the members of the JSON object, their types say what is accepted. Members whose
object is kept as it is are read through ``Members``. So a damaged or hostile record ends in one named error, and never
in a ``KeyError``.

Each such record has the version of its form, which is compared before anything else of it is read. A record of another
version, or without one, is refused; none is ever converted (docs/adr/0029-stored-version.md).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Self, TypeVar

import msgspec
import orjson
from msgspec import Meta

from airflow_provider_mysql_cdc.cdc.errors import CdcError, DamagedRecordError, StoredVersionError, from_json

T = TypeVar("T")

STORED_VERSION = 2
"""Version of all stored forms together: whoever changes one of them raises it (docs/runbook.md says what users do)."""
VERSION_MEMBER = "v"
INT64_MAX = 2**63 - 1
Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""A whole number that is not negative."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_REQUIRED: Any = object()
_MAX_SHOWN = 60
_PREPARED, _PREPARING = set[Any](), threading.RLock()
"""Types that msgspec knows, and who may make it known one."""


def damaged_record(why: str, where: str = "") -> DamagedRecordError:
    """Return the error of a record that cannot be read.

    Args:
        why: The member, and what is wrong with it.
        where: Topic, key and offset, table or file.
    """
    return DamagedRecordError(
        "a stored record is damaged",
        where=where,
        why=why,
        remedy="find out what wrote it; no other program may write there (docs/runbook.md, damaged records)",
    )


def versioned(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a record with the version of their form."""
    return {**data, VERSION_MEMBER: STORED_VERSION}


def require_version(record: object, where: str = "") -> None:
    """Check that a record is of the version of the form that this package writes.

    Args:
        record: Its JSON; one that is no object has no version.
        where: Topic, key and offset, table or file.

    Raises:
        StoredVersionError: It is of another one, or of none.
    """
    version = record.get(VERSION_MEMBER) if isinstance(record, Mapping) else None
    if type(version) is not int or version != STORED_VERSION:
        raise stored_version_error(version, where)


def stored_version_error(found: object, where: str) -> StoredVersionError:
    """Return the error of a record of another version.

    Args:
        found: Its version; None for a record without one.
        where: Topic, key and offset, table or file.
    """
    return StoredVersionError(
        "a stored record is of another version",
        where=where,
        why=f"it has {'no version' if found is None else f'version {_describe(found)}'}; this version of the package "
        f"writes and reads version {STORED_VERSION} only",
        remedy="use the version of the package that wrote it (CHANGELOG.md says which one reads which); or start the "
        "stream's state again at the position that it has reached (docs/runbook.md, records of another version)",
    )


@contextmanager
def record_location(where: str) -> Iterator[None]:
    """Say where a record stands that is read inside.

    Args:
        where: Topic, key and offset, table or file.

    Raises:
        DamagedRecordError: The record is damaged, with its place.
        StoredVersionError: It is of another version, with its place.
    """
    try:
        yield
    except (DamagedRecordError, StoredVersionError) as error:
        raise error.located(where) from None


def parse_json(text: str | bytes, where: str = "") -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        where: Its place, for the error.

    Raises:
        DamagedRecordError: It is no JSON, or nested deeper than anything that is stored.
    """
    try:
        # Four times as fast as json; what it refuses (NaN, half a surrogate pair) may still be what json reads.
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except ValueError as error:
        raise damaged_record(f"it is not JSON: {error}", where) from None
    except RecursionError:
        raise damaged_record("it is nested too deeply", where) from None


class Record:
    """Base of a dataclass that is a JSON object, member by member.

    Every field is written, and has to be there when the object is read, also one that has a default for whoever makes
    the value. Objects inside are read by their types alone: there a default stands for a member that is missing.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: lists, objects with names, texts, numbers, truth values and null."""
        members: dict[str, Any]
        try:
            members = msgspec.json.decode(msgspec.json.encode(self, enc_hook=_encode))
        except UnicodeEncodeError:  # a lone surrogate, in a text of the server
            members = json.loads(json.dumps(msgspec.to_builtins(self, str_keys=True, enc_hook=_encode)))
        return members

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        found, path = (data.data, data.path("").rstrip(".")) if isinstance(data, Members) else (data, "")
        record = read_as(cls, found, path)
        try:
            if missing := cls.__dataclass_fields__.keys() - found.keys():  # type: ignore[attr-defined]
                raise ValueError(f"Object missing required field `{min(missing)}`")
            record.check()
        except ValueError as error:
            raise _type_error(error, path) from None
        return record

    def check(self) -> None:
        """Check what no type says of the members together.

        Raises:
            ValueError: They contradict each other; the text names the member as types do, behind `` - at `$``.
        """


class VersionedRecord(Record):
    """Base of a record that has the version of its form itself, because it is stored alone."""

    __slots__ = ()
    location = ""
    """Where such records are, for errors; empty where readers say it (``record_location``)."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with the version."""
        return versioned(super().to_json())

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
            StoredVersionError: It is of another version.
        """
        with record_location(cls.location):
            members = data if isinstance(data, Members) else Members(data)
            require_version(members.data)
            return super().from_json(members)


def read_as(kind: type[T], data: object, path: str = "") -> T:
    """Return the value of a type that plain JSON stands for.

    Args:
        kind: A dataclass, ``TypedDict`` or type of the like; its bounds stand in ``msgspec.Meta``.
        data: The JSON.
        path: Its place in the record, for errors.

    Raises:
        DamagedRecordError: It is something else.
    """
    if kind not in _PREPARED:
        _prepare(kind)
    try:
        return msgspec.convert(data, kind, str_keys=True, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise _type_error(error, path) from None
    except UnicodeEncodeError:  # texts may have one, nothing else
        raise damaged_record(f"{path or 'it'}: half a surrogate pair stands where no text is expected") from None


def _prepare(kind: Any) -> None:
    """Let msgspec look at a type, and those inside, in one thread.

    It shows what it knows of a class before that is complete, so two threads that meet a class first end the process
    with a segmentation fault (msgspec 0.22).
    """
    with _PREPARING, suppress(msgspec.ValidationError):
        msgspec.convert(None, kind, str_keys=True, dec_hook=_decode)
    _PREPARED.add(kind)


def _type_error(error: Exception, path: str) -> DamagedRecordError:
    what, _, where = str(error).partition(" - at `$")
    return damaged_record(f"{(path + where.strip('`')).strip('.') or 'it'}: {what[:1].lower()}{what[1:]}")


def _encode(value: Any) -> Any:
    return value.to_json()


def _decode(kind: Any, value: Any) -> Any:
    return from_json(value) if issubclass(kind, CdcError) else kind.from_json(value)


class Members:
    """Read the members of one stored JSON object.

    A method's ``default`` is returned for a member that is missing, because its writer leaves it out; without one the
    member is required.

    Args:
        data: What should be a JSON object.
        path: Its place in the record, for errors; empty for the record itself.

    Raises:
        DamagedRecordError: It is no object; and from every method, when the member is not what it should be.
    """

    __slots__ = ("_data", "_path")

    def __init__(self, data: object, path: str = "") -> None:
        if type(data) is not dict and not isinstance(data, Mapping):
            raise damaged_record(f"{path or 'it'} is not a JSON object: {_describe(data)}")
        self._data, self._path = data, path

    @property
    def data(self) -> Mapping[str, Any]:
        """The object as it is."""
        return self._data

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def member_error(self, name: str, expected: str) -> DamagedRecordError:
        """Return the error for a member.

        Args:
            name: The member.
            expected: What it should be.
        """
        if name not in self._data:
            return damaged_record(f"{self.path(name)} must be there, and is missing")
        return damaged_record(f"{self.path(name)} must be {expected}, and is {_describe(self._data[name])}")

    def path(self, name: str) -> str:
        """Return the path of a member."""
        return f"{self._path}.{name}" if self._path else name

    def value(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return a member as it is."""
        if name in self._data:
            return self._data[name]
        if default is _REQUIRED:
            raise self.member_error(name, "there")
        return default

    def text(self, name: str, default: str = _REQUIRED) -> str:
        """Return a text; one that UTF-8 cannot write is refused."""
        value: Any = self._data.get(name, default)
        if not is_text(value):
            raise self.member_error(name, "a text")
        return value if type(value) is str else str(value)

    def text_or_none(self, name: str) -> str | None:
        """Return a text, or None when it is missing or null."""
        return None if self._data.get(name) is None else self.text(name)

    def integer(self, name: str, default: int = _REQUIRED, *, low: int = 0, high: int = INT64_MAX) -> int:
        """Return a whole number from ``low`` to ``high``, both included."""
        value: Any = self._data.get(name, default)
        if type(value) is int and low <= value <= high:
            return value
        if not is_integer(value) or not low <= value <= high:
            raise self.member_error(name, f"a whole number from {low} to {high}")
        return int(value)

    def integer_or_none(self, name: str) -> int | None:
        """Return a whole number from 0, or None when it is missing or null."""
        return None if self._data.get(name) is None else self.integer(name)

    def flag(self, name: str, default: bool = _REQUIRED) -> bool:
        """Return true or false."""
        value: Any = self.value(name, default)
        if not isinstance(value, bool):
            raise self.member_error(name, "true or false")
        return value

    def one_of(self, name: str, choices: Collection[str], default: str = _REQUIRED) -> str:
        """Return one of some texts."""
        value: Any = self.value(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.member_error(name, f"one of {', '.join(choices)}")
        return value

    def number(self, name: str, default: float = _REQUIRED) -> float:
        """Return a number that is not negative."""
        value: Any = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
            raise self.member_error(name, "a number")
        return float(value)

    def values(self, name: str, default: tuple[Any, ...] = _REQUIRED) -> tuple[Any, ...]:
        """Return the elements of a list as they are."""
        value: Any = self.value(name, default)
        if not isinstance(value, (list, tuple)):
            raise self.member_error(name, "a list")
        return tuple(value)

    def object(self, name: str, default: Mapping[str, Any] = _REQUIRED) -> Members:
        """Return an object's members."""
        return Members(self.value(name, default), self.path(name))

    def objects(self, name: str, default: tuple[Any, ...] = _REQUIRED) -> tuple[Members, ...]:
        """Return the members of each object of a list."""
        return tuple(Members(v, f"{self.path(name)}[{i}]") for i, v in enumerate(self.values(name, default)))

    def as_dict(self) -> dict[str, Any]:
        """Return the object as it is."""
        return {name: self._data[name] for name in self.names()}

    def names(self) -> tuple[str, ...]:
        """Return the names of all members."""
        if not all(map(is_text, self._data)):
            raise damaged_record(f"{self._path or 'it'} has a member whose name is not a text")
        return tuple(self._data)


def is_text(value: object) -> bool:
    """Return whether a value is a text that UTF-8 can write."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    return _SURROGATE.search(value) is None


def is_integer(value: object) -> bool:
    """Return whether a value is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _describe(value: object) -> str:
    """Return a short form of a value for a message."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > INT64_MAX:
        return "a number out of all bounds"
    return repr(value if not isinstance(value, str) else value[:_MAX_SHOWN])

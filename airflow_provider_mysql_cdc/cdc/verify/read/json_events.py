"""Read keys or values that JsonConverter has written, with schemas or without, and tell whether they are exact.

Compaction and consumers by key compare the bytes of keys, so these have to be those that the stream writes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import orjson

from airflow_provider_mysql_cdc.cdc.convert.json_text import RawJson, dumps
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import narrowed_float
from airflow_provider_mysql_cdc.cdc.model.java import java_double
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import Forms, Row, SchemaForms, UnreadableRecord

_MEMBER = rb'"[ !#-\[\]-~]*":(?:0|-?[1-9][0-9]{0,17}|true|false|null|"[ !#-\[\]-~]*")'
_PLAIN = re.compile(rb"\{" + _MEMBER + rb"(?:," + _MEMBER + rb")*\}")
_ENDS_OF_NAMES = b'":'


def is_exact_json(text: bytes, members: int) -> bool:
    """Return whether an object has no blanks, no member twice, and texts and numbers as the stream writes them."""
    if _PLAIN.fullmatch(text) is not None:
        return text.count(_ENDS_OF_NAMES) == members
    try:
        document = json.loads(text.decode(), parse_int=_whole, parse_float=_number, parse_constant=_number)
        return dumps(document).encode() == text
    except (ValueError, ArithmeticError, RecursionError):
        return False


def _whole(text: str) -> Any:
    if str(int(text)) != text:
        raise ValueError(f"{text} is not written so")
    return RawJson(text)


def _number(text: str) -> Any:
    number = float(text)
    if text == java_double(number) or text == narrowed_float(number):
        return RawJson(text)
    raise ValueError(f"{text} is not written so")


_MEMBERS = {"schema", "payload"}
_HEAD, _PAYLOAD = b'{"schema":', b',"payload":'
# A topic has few schemas at a time; one that several tables share has more.
_MAX_SCHEMAS = 1024


class PlainJson:
    """Read keys or values without schemas."""

    def __init__(self, part: str) -> None:
        self._part = part

    def read(self, data: bytes, headers: Headers = ()) -> tuple[Any, Forms | None]:
        """Return what the bytes hold; the forms of the values are not known.

        Raises:
            UnreadableRecord: They are not JSON, or have a schema.
        """
        document = parse_json(self._part, data)
        require_once(self._part, data, document)
        # A key may consist of columns of these names, but their values are no objects.
        if isinstance(document, dict) and document.keys() == _MEMBERS and isinstance(document["schema"], dict):
            raise UnreadableRecord(
                f"the {self._part} has a schema, although {self._part}.converter.schemas.enable is false"
            )
        return document, None

    def is_exact(self, data: bytes, fields: Row, headers: Headers = ()) -> bool:
        """Return whether a key is in the bytes that the stream writes for its fields."""
        return is_exact_json(data, len(fields))


class _DescribedForms(SchemaForms):
    """Hold what a schema says, and whether it is in the bytes that the stream writes."""

    def __init__(self, forms: Forms, schema: Mapping[str, Any], *, exact: bool) -> None:
        super().__init__(forms, schema)
        self.exact = exact
        self._names = _names(schema)
        self._structs = {field["field"]: _names(field) for field in schema["fields"] if field["type"] == "struct"}

    def require_described(self, part: str, payload: Any) -> None:
        """Check that a payload has the members that its schema names: by these, consumers take it apart.

        Raises:
            UnreadableRecord: It has others.
        """
        if not isinstance(payload, dict):
            return
        structs = [(payload, self._names), *((payload.get(name), names) for name, names in self._structs.items())]
        for struct, names in structs:
            if isinstance(struct, dict) and struct.keys() != names:
                more = ", ".join(sorted(map(str, struct.keys() - names)))
                lacking = f"the {part} lacks members that its schema names: {', '.join(sorted(names - struct.keys()))}"
                unnamed = f"the {part} has members that the stream does not write: {more}, which its schema lacks"
                raise UnreadableRecord(unnamed if more else lacking)


def _names(schema: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(field["field"] for field in schema["fields"])


class JsonWithSchemas:
    """Read keys or values with schemas, of which each is parsed once.

    Args:
        part: ``key`` or ``value``, for messages.
        forms_of: Returns the forms of the values of a schema.
    """

    def __init__(self, part: str, forms_of: Callable[[Mapping[str, Any]], Forms]) -> None:
        self._part, self._forms_of = part, forms_of
        self._forms: dict[bytes, _DescribedForms] = {}
        self._last: tuple[bytes, _DescribedForms | None] = b"\0", None

    def read(self, data: bytes, headers: Headers = ()) -> tuple[Any, Forms | None]:
        """Return the payload and the forms of its values.

        Raises:
            UnreadableRecord: They are not JSON with a schema.
        """
        head, forms = self._last
        if forms is None or not data.startswith(head):
            end = data.find(_PAYLOAD) + len(_PAYLOAD)
            known = self._forms.get(data[:end])
            if known is None:
                return self._read_new(data, data[:end])
            self._last = head, forms = data[:end], known
        # What comes before is an object up to its member payload. A single value up to the last brace is that member.
        if data.endswith(b"}"):
            with suppress(orjson.JSONDecodeError):
                text = data[len(head) : -1]
                payload = orjson.loads(text)
                require_once(self._part, text, payload)
                forms.require_described(self._part, payload)
                return payload, forms
        return self._read_new(data, b"")

    def is_exact(self, data: bytes, fields: Row, headers: Headers = ()) -> bool:
        """Return whether a key is in the bytes that the stream writes for its fields."""
        end = data.find(_PAYLOAD) + len(_PAYLOAD)
        forms = self._forms.get(data[:end])
        is_whole = forms is not None and forms.exact and data.endswith(b"}")
        return is_whole and is_exact_json(data[end:-1], len(fields))

    def _read_new(self, data: bytes, head: bytes) -> tuple[Any, Forms]:
        """Read a document in full, and keep the forms of its schema if it ends where the payload begins."""
        document = parse_json(self._part, data)
        require_once(self._part, data, document)
        if not isinstance(document, dict) or document.keys() != _MEMBERS:
            raise UnreadableRecord(
                f"the {self._part} has no schema, although {self._part}.converter.schemas.enable is true"
            )
        schema, payload = document["schema"], document["payload"]
        if schema is None and payload is None:
            return None, {}
        try:
            exact = head.startswith(_HEAD) and is_exact_json(head[len(_HEAD) : -len(_PAYLOAD)], len(schema))
            forms = _DescribedForms(self._forms_of(schema), schema, exact=exact)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableRecord(
                f"the schema of the {self._part} is none of Connect's ({type(error).__name__}: {error})"
            ) from error
        with suppress(orjson.JSONDecodeError):
            if head.startswith(_HEAD) and orjson.loads(head[len(_HEAD) : -len(_PAYLOAD)]) == schema:
                if len(self._forms) >= _MAX_SCHEMAS:
                    self._forms.clear()
                self._forms[head] = forms
        forms.require_described(self._part, payload)
        return payload, forms


def parse_json(part: str, data: bytes) -> Any:
    """Return what JSON text holds.

    Raises:
        UnreadableRecord: It is not JSON in UTF-8.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        with suppress(ValueError, RecursionError):
            # Half a surrogate pair, which orjson refuses.
            return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
        raise UnreadableRecord(f"the {part} is not JSON: {error}") from error


def require_once(part: str, text: bytes, document: Any) -> None:
    """Check that no object of a value has a member twice: one consumer takes the first, and another the last.

    Keys with one are not exact.

    Raises:
        UnreadableRecord: One has.
    """
    try:
        if orjson.dumps(document) == text or part != "value":
            return
    except TypeError as error:  # half a surrogate pair, which orjson refuses too
        if "ecursion" in str(error):
            raise UnreadableRecord(f"the {part} is nested deeper than any that the stream writes") from error
    if part != "value":
        return
    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=_once)


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise UnreadableRecord("the value has a member twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")

"""Tell whether JSON text is in the bytes that the stream writes: compaction and consumers by key compare these."""

from __future__ import annotations

import json
import re
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import RawJson, dumps
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import java_double, narrowed_float

_MEMBER = rb'"[ !#-\[\]-~]*":(?:0|-?[1-9][0-9]{0,17}|true|false|null|"[ !#-\[\]-~]*")'
_PLAIN = re.compile(rb"\{" + _MEMBER + rb"(?:," + _MEMBER + rb")*\}")
_ENDS_OF_NAMES = b'":'


def is_exact_json(text: bytes, members: int) -> bool:
    """Return whether an object has no blanks, no member twice, and texts and numbers as the stream writes them.

    Args:
        text: The object; its members may be in any order.
        members: How many it has as it is read.
    """
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

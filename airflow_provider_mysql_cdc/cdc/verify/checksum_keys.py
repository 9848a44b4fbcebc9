"""Take keys in JSON as bytes: their fields without the schema, and whether only one text has these values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import orjson

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.verify.compared_columns import column_field

PLAIN_VALUE = rb'(?:0|-?[1-9][0-9]{0,17}|true|false|null|"[ !#-\[\]-~]*")'
"""A value that only one text has."""


def matcher_of_lines(pattern: bytes) -> Callable[[Sequence[bytes]], bool]:
    """Return what tells whether a pattern matches each of several texts: one look for all of them.

    Args:
        pattern: A regular expression that matches no line feed.
    """
    # Not possessive: in Python 3.11.2 such a repetition matches a text whose last line is cut off.
    match = re.compile(pattern + rb"(?:\n" + pattern + rb")*").fullmatch

    def matches(texts: Sequence[bytes]) -> bool:
        joined = b"\n".join(texts)
        return match(joined) is not None and joined.count(b"\n") == len(texts) - 1

    return matches


class KeySlices(Protocol):
    """Take the fields out of keys."""

    def fields_of(self, key: bytes) -> bytes | None:
        """Return the bytes of a key's fields; None if other bytes may have the same values.

        Args:
            key: The record's key.
        """

    def fields_of_all(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the same of several keys."""


class KeyTexts:
    """Take the fields out of the keys of one table's records.

    Args:
        prefix: What keys begin with before their fields; empty for keys without schemas.
        fields: The key's fields, in order.
    """

    def __init__(self, prefix: bytes, fields: tuple[str, ...]) -> None:
        self.prefix, self.fields = prefix, fields
        members = b",".join(re.escape(dumps(name).encode()) + b":" + PLAIN_VALUE for name in fields)
        self._is_plain = re.compile(rb"\{" + members + rb"\}").fullmatch
        self._are_plain = matcher_of_lines(rb"\{" + members + rb"\}")

    def fields_of(self, key: bytes) -> bytes | None:
        """Return the text of a key's fields; None if another text may have the same values.

        The comparison of rows reads keys, so keys of other texts may be those of the same row. None also stands for
        what is no key of the table's present structure.

        Args:
            key: The record's key.
        """
        if self.prefix:
            if not key.startswith(self.prefix) or not key.endswith(b"}"):
                return None
            key = key[len(self.prefix) : -1]
        return key if self._is_plain(key) is not None or self._is_written_so(key) else None

    def fields_of_all(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the same of several keys.

        Args:
            keys: The records' keys.
        """
        fields = texts_of_fields(self.prefix, keys)
        return fields if self._are_plain(fields) and len(fields) == len(keys) else [self.fields_of(k) for k in keys]

    def _is_written_so(self, text: bytes) -> bool:
        try:
            fields = orjson.loads(text)
            return isinstance(fields, dict) and tuple(fields) == self.fields and orjson.dumps(fields) == text
        except (ValueError, TypeError):
            return False


def texts_of_fields(prefix: bytes, keys: Sequence[bytes]) -> Sequence[bytes]:
    """Return the texts of the fields of keys, without those that have another schema.

    Args:
        prefix: What keys begin with before their fields; empty for keys without schemas.
        keys: The keys.
    """
    begin = len(prefix)
    return [key[begin:-1] for key in keys if key.startswith(prefix) and key.endswith(b"}")] if prefix else keys


def key_texts(cfg: ConnectorConfig, table: Table) -> KeyTexts:
    """Return what takes the fields out of the keys of a table whose keys are JSON.

    Args:
        cfg: The connector's configuration.
        table: The table.
    """
    options = table_options.table_options(cfg, table)
    schema = table_options.envelope_text(cfg, table, options).key_schema
    prefix = b"" if schema is None else f'{{"schema":{schema},"payload":'.encode()
    return KeyTexts(prefix, tuple(column_field(cfg, column) for column in key_columns(table, options)))

"""Find the native kernel, and tell it its operation on each column.

Find the native kernel: a separate extension (``native/``) that is used where it is installed and is never required.

``MYSQL_CDC_NATIVE=off`` in a process's environment disables it.

A truncated kernel file ends the process that maps it (SIGBUS, no exception), and a damaged one may decode wrong values;
so the file is compared with the hash that the installer recorded before it is loaded.

The native kernel's operation on a column: a name, numbers and texts (``native/src/json_renderer.rs`` reads them).

The choices are those of ``renderers`` and ``temporal_code``; an unsupported column has no operation here.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen import renderers
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import constant_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    TIMES_OF_DAY,
    TemporalRequest,
    datetime_unit,
    time_unit,
)
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape, quote_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.text_values import charset
from airflow_provider_mysql_cdc.cdc.model.charset_tables import SINGLE
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, WireFormat
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Column

MODULE, ENV_VARIABLE = "mysql_cdc_native", "MYSQL_CDC_NATIVE"
DISTRIBUTION = "airflow-provider-mysql-cdc-native"
_OFF, _ON = ("off", "0", "false", "no"), ("", "on", "1", "true", "yes")
SWITCH_VALUES = dict.fromkeys(_OFF, False) | dict.fromkeys(_ON, True)
"""Whether a value of the variable enables the kernel; any other value disables it."""
FORM = 0x41BEB856
"""Hash of the arguments of the kernel's functions and of records, as in ``native/src/lib.rs``."""
DECLINE_REASONS = ("value", "key_change", "incomplete_image", "call", "defect")
"""Why the kernel declines an event, by its negative result, that of -1 first."""
KEY_CHANGE, INCOMPLETE, PANIC = -2, -3, -5
"""Results of events that Python decodes: a changed key that headers show in a way that the kernel does not know, images
that leave columns out, or a defect of the kernel."""


AppendRecords = Callable[..., int]


class Tally:
    """Count the rows and events of a writer's decoders.

    Args:
        native: The kernel's own counters.
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        self._fallbacks: dict[str, int] = {}

    def count_fallback(self, reason: str) -> None:
        """Count a row event that Python decoded without the kernel.

        Args:
            reason: Why.
        """
        self._fallbacks[reason] = self._fallbacks.get(reason, 0) + 1

    def counting_fallbacks(self, decode: AppendRecords, reason: str) -> AppendRecords:
        """Return a decoder's function that counts its calls as decoded in Python.

        Args:
            decode: The function.
            reason: Why.
        """

        def counted(*arguments: Any) -> int:
            self.count_fallback(reason)
            return decode(*arguments)

        return counted

    def counts(self) -> NativeCounts:
        """Return the counts so far."""
        declined = {reason: n for reason, n in zip(DECLINE_REASONS, self.native.declined, strict=True) if n}
        return (
            NativeCounts(int(self.native.rows), {}).add(NativeCounts(0, declined)).add(NativeCounts(0, self._fallbacks))
        )


class Kernel(NamedTuple):
    """Describe the kernel of a process.

    Args:
        module: The extension; None when Python decodes everything.
        text: Its description for the log.
    """

    module: Any
    text: str

    def new_tally(self) -> Tally | None:
        """Return new counters; None without a kernel."""
        return None if self.module is None else Tally(self.module.Tally())


def kernel() -> Kernel:
    """Return the kernel of this process."""
    setting = os.environ.get(ENV_VARIABLE, "").strip()
    enabled = SWITCH_VALUES.get(setting.lower())
    if not enabled:
        return Kernel(None, f"Python ({ENV_VARIABLE}={setting}{', which is neither on nor off' * (enabled is None)})")
    return _load_kernel()


@cache
def _load_kernel() -> Kernel:
    try:
        if damaged := _damaged_file():
            return Kernel(None, f"Python (the native kernel is damaged: {damaged}; install it again)")
        module = import_module(MODULE)
        plan_format = module.FORM
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == MODULE
        return Kernel(None, "Python" if missing else f"Python (the native kernel cannot be loaded: {error})")
    if plan_format != FORM:
        why = f"native kernel {module.__version__} is for another version of this package"
        return Kernel(None, f"Python ({why}: install the one that comes with it)")
    return Kernel(module, f"native kernel {module.__version__}")


def _damaged_file() -> str:
    """Return which file of the package differs from the installed one; empty where none is known to."""
    spec = None if MODULE in sys.modules else find_spec(MODULE)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent
    for distribution in metadata.distributions(name=DISTRIBUTION):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            # A second copy, such as one on PYTHONPATH, has no recorded hash.
            if file.hash is None or path.suffix != ".so" or not folder.exists() or not path.parent.samefile(folder):
                continue
            digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
                return f"{path} is not what was installed"
    return ""


class Op(NamedTuple):
    """Name an operation on a value.

    Args:
        name: The operation.
        numbers: Its parameters.
        texts: Its texts.
    """

    name: str
    numbers: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()


_MakeOp = Callable[[ColumnRequest, WireFormat], Op | None]
_BYTES = "latin-1"  # byte text has one character a byte


def _integer(request: ColumnRequest, form: WireFormat) -> Op:
    width = request.column.mysql_type.width
    op = _BY_WIDTH[width](request) if width in _BY_WIDTH else None
    return op or Op("unsigned" if request.column.unsigned else "signed", (width,))


def _tinyint(request: ColumnRequest) -> Op | None:
    test = request.options.boolean_test(request.column)
    if test is None:
        return None
    return Op("boolean", (1, (0 if request.column.unsigned else 1) | (2 if test == "> 0" else 0)))


def _bigint(request: ColumnRequest) -> Op:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        return Op("signed", (8,))
    return Op("unsigned_base64", (8,))


_BY_WIDTH: dict[int, Callable[[ColumnRequest], Op | None]] = {1: _tinyint, 8: _bigint}


def _decimal(request: ColumnRequest, form: WireFormat) -> Op:
    return Op(f"decimal_{request.options.decimal_mode}", (request.wire.length, request.wire.scale))


def _float(request: ColumnRequest, form: WireFormat) -> Op:
    return Op("float" if request.options.single_float(request.column) else "float_as_double")


def _double(request: ColumnRequest, form: WireFormat) -> Op:
    return Op("double_as_float" if request.options.single_float(request.column) else "double")


def _bit(request: ColumnRequest, form: WireFormat) -> Op:
    return Op("bit") if request.wire.length == 1 else Op("bits", ((request.wire.length + 7) // 8,))


def _enum(request: ColumnRequest, form: WireFormat) -> Op:
    texts = ('""', *map(quote_byte_text, request.column.enum_values))
    return Op("enum", (1 if request.wire.length == 1 else 2,), tuple(text.encode(_BYTES) for text in texts))


def _set(request: ColumnRequest, form: WireFormat) -> Op:
    members = (quote_byte_text(member)[1:-1] for member in request.column.enum_values)
    return Op("set", (request.wire.length,), tuple(member.encode(_BYTES) for member in members))


_UNICODE = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf8"),
    **dict.fromkeys(("ucs2", "utf16"), "utf16"),
    "utf16le": "utf16le",
    "utf32": "utf32",
}


@cache
def _character_texts(name: str) -> tuple[bytes, ...]:
    """Return the text of each byte of a character set inside a JSON string; empty for one that is an error."""
    decode, texts = charset(name).decode, []
    for code in range(256):
        try:
            texts.append(escape(decode(bytes([code]))).encode())
        except UnicodeDecodeError:
            texts.append(b"")
    return tuple(texts)


def _text(prefix: int, request: ColumnRequest, *, fixed_length: bool) -> Op | None:
    name = request.column.charset or "utf8mb4"
    if name in SINGLE or name == "ascii":
        return Op("text:table", (prefix,), _character_texts(name))
    if name not in _UNICODE:
        return None
    return Op(f"{'char' if fixed_length and charset(name).unit > 1 else 'text'}:{_UNICODE[name]}", (prefix,))


def _string(request: ColumnRequest, form: WireFormat) -> Op | None:
    prefix, size, fixed_length = renderers.string_layout(request.wire)
    if request.column.family is Family.BYTES or request.column.charset == "binary":
        return Op(request.options.binary_mode, (prefix, size if fixed_length else 0))
    return _text(prefix, request, fixed_length=fixed_length)


def _prefixed(request: ColumnRequest, form: WireFormat) -> Op:
    return Op(form.native_op, (request.wire.length,))


def _clock(request: ColumnRequest, form: WireFormat) -> Op | None:
    kind, column, options = form.native_op, request.column, request.options
    if kind == "timestamp" and request.wire.length and options.trims_timestamps:
        return None
    temporal_request = TemporalRequest(request.wire, options, request.null, column)
    iso, digits, day_mode = temporal_request.mode == "isostring", request.wire.length, 0
    if kind.endswith("time") and not kind.endswith("datetime"):
        unit = 0 if temporal_request.mode in TIMES_OF_DAY else time_unit(temporal_request.mode, digits)
        day_mode = 1 + TIMES_OF_DAY.index(temporal_request.mode) if temporal_request.mode in TIMES_OF_DAY else 0
    else:
        unit = 0 if iso else datetime_unit(temporal_request.mode, digits)
    if kind == "date":
        zero = temporal_request.zero('"1970-01-01Z"' if iso else "0")
    else:
        zero = temporal_request.zero('"1970-01-01T00:00:00Z"' if iso or kind.endswith("timestamp") else "0")
    numbers = (digits, unit, int(options.time_adjuster), int(column.nullable), day_mode)
    return Op(f"clock:{kind}", numbers, (zero.encode(_BYTES), request.null.encode(_BYTES)))


OPS: dict[Family, _MakeOp | None] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _string,
    Family.BYTES: _string,
    Family.ENUM: _enum,
    Family.SET: _set,
    Family.JSON: _prefixed,
    Family.DATE: _clock,
    Family.TIME: _clock,
    Family.DATETIME: _clock,
    Family.TIMESTAMP: _clock,
    Family.YEAR: lambda request, form: Op(form.native_op),
    Family.GEOMETRY: _prefixed,
    Family.POINT: _prefixed,
    Family.VECTOR: _prefixed,
}
"""None where the kernel has no operation."""


def require_plain_values(column: Column, options: DecoderOptions) -> None:
    """Decline a column whose values are masked, hashed, cut or converted.

    Args:
        column: The column.
        options: Modes.

    Raises:
        Declined: A converter handles it, or its values are truncated or hashed.
    """
    if options.custom(column) is not None:
        raise Declined(f"a converter handles column {column.name}")
    value_change = options.treatment(column).change
    if value_change is not None and constant_text(value_change) is None:
        raise Declined(f"column {column.name} is truncated or hashed")


def binlog_op(request: ColumnRequest) -> Op | None:
    """Return the kernel's operation on a column's values, or None where it has none.

    Args:
        request: The column.
    """
    form = request.wire_format
    make_op = None if form is None else OPS[request.column.family]
    return None if form is None or make_op is None else make_op(request, form)

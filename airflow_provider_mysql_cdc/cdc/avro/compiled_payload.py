"""Encoders from payloads to Avro as generated code: one function a schema, without a call for each member.

The closures of ``avro_payload`` say what the code means; they take over when it fails, so that errors name the member.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode, encoder
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import Schema, null_index

_FILE = "<avro encoder>"
_FEW = 32
"""Payloads of a schema that are encoded without code of its own."""
_INTEGERS = ("int8", "int16", "int32", "int64")
# Type to the expression of its bytes; the value's name stands for {}.
_SCALARS = {
    **dict.fromkeys(_INTEGERS, "(S[{0}] if -8192 <= {0} < 8192 else varint({0}))"),
    "float": "single(float({}))",
    "double": "double(float({}))",
    "boolean": "boolean({})",
    "string": "(V[len({0})] + {0} if {0}.isascii() else text({0}))",
    "bytes": "data(a2b_base64({}))",
}
_NAMES = {
    "V": binary.VARINTS,
    "S": binary.SMALL,
    "varint": binary.varint,
    "single": binary.single,
    "double": binary.double,
    "boolean": binary.boolean,
    "text": binary.text,
    "data": binary.data,
    "a2b_base64": a2b_base64,
}


def compiled_encoder(schema: Schema) -> Encode:
    """Return the function that encodes payloads of a schema, as ``avro_payload.encoder`` does.

    Args:
        schema: The Connect schema as JsonConverter writes it.

    Raises:
        SchemaError: A type is not known.
    """
    code = _Code()
    slow = encoder(schema)
    result = code.value(schema, "payload", 1)
    source = "\n".join(["def run(payload):", *code.lines, f" return f'{{{result}}}'"])
    exec(compile(source, _FILE, "exec"), code.namespace)  # source generated here; names of columns are values in it
    fast: Encode = code.namespace["run"]

    def encode(payload: Any) -> str:
        try:
            return fast(payload)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return slow(payload)

    return encode


def encoder_of_use(schema: Schema) -> Encode:
    """Return the function that encodes payloads of a schema, and is compiled when it has been called a few times.

    Compiling takes as long as hundreds of payloads, and most schemas have few: rows mostly take another way, and beside
    them there is a record now and then.

    Args:
        schema: As for ``compiled_encoder``.

    Raises:
        SchemaError: A type is not known.
    """
    return _OfUse(schema, encoder(schema))


class _OfUse:
    """Count the payloads of a schema until its encoder is worth compiling."""

    __slots__ = ("_encode", "_left", "_schema")

    def __init__(self, schema: Schema, slow: Encode) -> None:
        self._schema, self._encode, self._left = schema, slow, _FEW

    def __call__(self, payload: Any) -> str:
        if self._left:
            self._left -= 1
            if not self._left:
                self._encode = compiled_encoder(self._schema)
        return self._encode(payload)


class _Code:
    """Collect the lines of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = dict(_NAMES)
        self._count = 0

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def value(self, schema: Schema, name: str, depth: int) -> str:
        """Add what encodes a value; return the name of its bytes.

        Args:
            schema: Its schema.
            name: The name that holds it.
            depth: Blanks before each line.
        """
        out = self._name("t")
        nulls = null_index(schema)
        if nulls is None:
            self._line(depth, f"{out} = {self._present(schema, name, depth)}")
            return out
        null, head = (r"\x00", r"\x02") if nulls == 0 else (r"\x02", r"\x00")
        self._line(depth, f"if {name} is None: {out} = '{null}'")
        self._line(depth, "else:")
        self._line(depth + 1, f"{out} = '{head}' + {self._present(schema, name, depth + 1)}")
        return out

    def _present(self, schema: Schema, name: str, depth: int) -> str:
        kind = schema["type"]
        if kind == "struct":
            return self._struct(schema, name, depth)
        if kind in _SCALARS:
            return _SCALARS[kind].format(name)
        other = self._name("other")
        self.namespace[other] = encoder({**schema, "optional": False})
        return f"{other}({name})"

    def _struct(self, schema: Schema, name: str, depth: int) -> str:
        get = self._name("get")
        self._line(depth, f"{get} = {name}.get")
        parts = []
        for field in schema["fields"]:
            member = self._name("v")
            self._line(depth, f"{member} = {get}({field['field']!r})")
            parts.append(self.value(field, member, depth))
        return "f'" + "".join(f"{{{part}}}" for part in parts) + "'"

"""Write cdc/model/charset_tables.py: what MySQL's character sets decode to, asked from a running server.

Usage: gen_charset_tables.py HOST PORT USER [PASSWORD]

Python's codec is taken as the base of every multi-byte character set; only the sequences that the server decodes
differently are stored. Single-byte sets are stored whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pymysql

TARGET = Path(__file__).resolve().parent.parent / "airflow_provider_mysql_cdc/cdc/model/charset_tables.py"
SINGLE = (  # noqa: SIM905
    "armscii8 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 dec8 geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 "
    "latin2 latin5 latin7 macce macroman swe7 tis620"
).split()
MULTI = {
    "big5": "big5",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
}
PAIRS = [bytes([a, b]) for a in range(0x80, 0x100) for b in range(0x100)]
TRIPLES = [bytes([0x8F, a, b]) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
QUADS = [
    bytes([a, b, c, d])
    for a in range(0x81, 0x85)
    for b in range(0x30, 0x3A)
    for c in range(0x81, 0xFF)
    for d in range(0x30, 0x3A)
]


def ask_server(cursor: Any, name: str, sequences: list[bytes]) -> list[str | None]:
    """Return what the server converts each sequence to; None where it is not well formed."""
    decoded: list[str | None] = []
    for start in range(0, len(sequences), 1000):
        part = sequences[start : start + 1000]
        rows = ",".join(f"ROW({i}, 0x{s.hex()})" for i, s in enumerate(part))
        cursor.execute(
            f"SELECT i, HEX(CONVERT(CONVERT(b USING {name}) USING utf8mb4)) FROM (VALUES {rows}) AS t (i, b) ORDER BY i"
        )
        decoded += [None if text is None else bytes.fromhex(text).decode() for _, text in cursor.fetchall()]
    return decoded


def python_decode(codec: str, data: bytes) -> str | None:
    """Return what Python decodes, or None."""
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        return None


def overrides(cursor: Any, name: str, codec: str) -> dict[bytes, str]:
    """Return the well-formed sequences that the server decodes differently from Python's codec."""
    out: dict[bytes, str] = {}
    sequences = [*PAIRS, *(TRIPLES if name in ("ujis", "eucjpms") else ()), *(QUADS if name == "gb18030" else ())]
    for data, text in zip(sequences, ask_server(cursor, name, sequences), strict=True):
        python_text = python_decode(codec, data)
        # One character only: a pair that is two characters is no sequence. "?" stands for a code without a character.
        if text is not None and len(text) == 1 and text != python_text and not (text == "?" and python_text is None):
            out[data] = text
    return out


def runs(table: dict[bytes, str]) -> Iterable[str]:
    """Return ``HEX:count:characters``, or ``HEX:count+first`` for consecutive characters, a run of codes each."""
    run: list[tuple[int, int, str]] = []
    for data, text in sorted(table.items(), key=lambda item: (len(item[0]), item[0])):
        code = int.from_bytes(data, "big")
        if run and (code != run[-1][0] + 1 or len(data) != run[-1][1] or (len(run) >= 16 and not _rising(run, text))):
            yield _run(run)
            run = []
        run.append((code, len(data), text))
    if run:
        yield _run(run)


def _rising(run: list[tuple[int, int, str]], text: str) -> bool:
    """Return whether a run and the character after it are consecutive."""
    first = ord(run[0][2])
    return all(ord(c) == first + i for i, c in enumerate([*(t for _, _, t in run), text]))


def _run(run: list[tuple[int, int, str]]) -> str:
    """Return one run; its characters are cut into pieces of 16 codes by ``runs``."""
    code, size, first = run[0]
    start = f"{code:0{size * 2}x}:{len(run)}"
    if len(run) > 1 and _rising(run[:-1], run[-1][2]):
        return f"{start}+{ord(first):04x}"
    return f"{start}:" + "".join(f"{ord(text):04x}" for _, _, text in run)


def main() -> None:
    """Ask the server and write the module."""
    host, port, user = sys.argv[1:4]
    password = sys.argv[4] if len(sys.argv) > 4 else ""
    conn = pymysql.connect(host=host, port=int(port), user=user, password=password, charset="utf8mb4")
    with conn.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
        assert row is not None
        version = row[0].split("-")[0]
        lines = [
            '"""Character sets as the server decodes them; written by scripts/gen_charset_tables.py.',
            "",
            f"Source: CONVERT(... USING utf8mb4) of MySQL {version}.",
            '"""',
            "",
            "# Characters of the bytes 0x80 to 0xFF (swe7: 0x00 to 0x7F); ? where a byte has none.",
            "SINGLE: dict[str, str] = {",
        ]
        for name in SINGLE:
            low = range(0x80) if name == "swe7" else range(0x80, 0x100)
            texts = ask_server(cursor, name, [bytes([i]) for i in low])
            characters = "".join(text if text is not None and len(text) == 1 else "?" for text in texts)
            lines += [f'    "{name}": (', *_chunks(characters), "    ),"]
        lines += [
            "}",
            "",
            "# Python codec, and what the server decodes differently: a run of codes is CODE:COUNT+FIRST when the",
            "# characters are consecutive, else CODE:COUNT:CHARACTERS (four hexadecimal digits each).",
            "MULTI: dict[str, tuple[str, str]] = {",
        ]
        for name, codec in MULTI.items():
            lines += [f'    "{name}": (', f'        "{codec}",']
            lines += _wrapped(list(runs(overrides(cursor, name, codec))))
            lines.append("    ),")
        lines.append("}")
    TARGET.write_text("\n".join(lines) + "\n", encoding="ascii")


def _chunks(characters: str) -> list[str]:
    return [
        '        "' + "".join(f"\\u{ord(c):04x}" for c in characters[i : i + 16]) + '"'
        for i in range(0, len(characters), 16)
    ]


def _wrapped(words: list[str]) -> list[str]:
    out, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 100:
            out.append(f'        "{line} "')
            line = ""
        line += (" " if line else "") + word
    return [*out, f'        "{line}",']


if __name__ == "__main__":
    main()

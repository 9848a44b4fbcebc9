#!/usr/bin/env python3
"""Write cdc/model/name_folding.py: the lower case of letters in names, asked from a running server.

Usage: gen_name_folding.py HOST PORT USER [PASSWORD]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pymysql

TARGET = Path(__file__).resolve().parent.parent / "airflow_provider_mysql_cdc/cdc/model/name_folding.py"
CODES = [code for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000]
TEXT = '''"""Lower case of letters in names, as the server has it; written by scripts/gen_name_folding.py.

Source: LOWER() of utf8mb3 in MySQL {version}.
"""

# Letters beyond ASCII whose lower case is another letter: FIRST-LAST/STEP+DISTANCE (the codes hexadecimal).
RUNS = (
{lines}
)
'''


def lower_case(cursor: Any) -> dict[int, int]:
    """Return the letters beyond ASCII whose lower case is another one, with it."""
    folded: dict[int, int] = {}
    for start in range(0, len(CODES), 1000):
        part = CODES[start : start + 1000]
        cursor.execute("SELECT LOWER(CONVERT(%s USING utf8mb3) COLLATE utf8mb3_general_ci)", ("".join(map(chr, part)),))
        (text,) = cursor.fetchone()
        folded |= {code: ord(lower) for code, lower in zip(part, text, strict=True) if ord(lower) != code}
    return folded


def runs(folded: dict[int, int]) -> list[str]:
    """Return letters of the same distance, one or two codes apart, as runs."""
    out: list[str] = []
    codes = sorted(folded)
    while codes:
        first, distance = codes[0], folded[codes[0]] - codes[0]
        lengths = {step: _length(folded, first, step, distance) for step in (1, 2)}
        step = max(lengths, key=lambda s: lengths[s])
        last = first + step * (lengths[step] - 1)
        taken = set(range(first, last + 1, step))
        codes = [code for code in codes if code not in taken]
        out.append(f"{first:x}-{last:x}/{step}{distance:+d}")
    return out


def _length(folded: dict[int, int], first: int, step: int, distance: int) -> int:
    count = 0
    while folded.get(first + count * step) == first + count * step + distance:
        count += 1
    return count


def main() -> None:
    """Ask the server and write the module."""
    host, port, user = sys.argv[1:4]
    password = sys.argv[4] if len(sys.argv) > 4 else ""
    conn = pymysql.connect(host=host, port=int(port), user=user, password=password, charset="utf8mb4")
    with conn.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        (version,) = cursor.fetchone() or ("",)
        words = runs(lower_case(cursor))
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 105:
            lines.append(f'    "{line} "')
            line = ""
        line += (" " if line else "") + word
    text = TEXT.format(version=version.split("-")[0], lines="\n".join([*lines, f'    "{line}"']))
    TARGET.write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()

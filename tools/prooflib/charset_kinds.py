"""Kinds of explained differences in text: how Java reads the character sets of MySQL."""

from __future__ import annotations

import codecs
from functools import cache
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from prooflib.values import texts

if TYPE_CHECKING:
    from prooflib.differ import Difference


def server_charset(d: Difference) -> bool:
    """Return whether the recorded stream has what Java makes of the bytes of our text.

    MySQL has character sets that Java lacks, and others that Java reads differently; ours is the server's reading.
    """
    if not texts(d) or d.pair[1] is None or d.pair[1].snapshot or len(d.ours) != len(d.theirs):
        return False
    # sjis and cp932 have a fullwidth backslash, which MySQL converts to a plain one.
    if d.ours == d.theirs.replace("\uff3c", "\\"):
        return True
    return any(all((a, b) in pairs for a, b in zip(d.ours, d.theirs, strict=True)) for pairs in _charset_pairs())


# Character sets of MySQL and how Python names the Java charset that Connector/J takes for them.
_IN_JAVA = {
    **dict.fromkeys(("armscii8", "dec8", "geostd8", "hp8", "swe7"), "cp1252"),
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp866")},
    **{"koi8u": "koi8_r", "keybcs2": "cp852", "greek": "iso8859_7", "hebrew": "iso8859_8", "tis620": "cp874"},
}


@cache
def _charset_pairs() -> tuple[frozenset[tuple[str, str]], ...]:
    """Return, by character set, the pairs of the server's character and Java's for the same byte."""
    found = []
    for name, java in _IN_JAVA.items():
        codes = [bytes((code,)) for code in range(256)]
        pairs = {(charset(name).decode(c), codecs.decode(c, java, "replace")) for c in codes}
        # Else a question mark of ours would pass for any letter of cp1252.
        found.append(frozenset(p for p in pairs if p[0] != "?" or p[1] in "?\ufffd" or java != "cp1252"))
    return tuple(found)

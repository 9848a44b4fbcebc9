"""Privileges of the connected account."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_GRANT = re.compile(r"GRANT (?P<names>.+?) ON (?P<scope>.+?) TO ", re.IGNORECASE | re.DOTALL)
_COLUMNS = re.compile(r"\([^)]*\)")
_EVERYTHING = "*.*"


@dataclass(frozen=True, slots=True)
class Grants:
    """Hold privileges.

    Args:
        everywhere: Privileges on ``*.*``, dynamic ones too, in upper case.
        somewhere: Privileges on any database, table or column.
    """

    everywhere: frozenset[str] = field(default_factory=frozenset)
    somewhere: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Grants:
        """Read the lines of SHOW GRANTS; without FOR it shows the privileges of active roles as well."""
        everywhere: set[str] = set()
        somewhere: set[str] = set()
        for line in lines:
            # A line without ON grants a role.
            if match := _GRANT.match(line):
                names = {name.strip().upper() for name in _COLUMNS.sub("", match["names"]).split(",")}
                (everywhere if match["scope"].strip() == _EVERYTHING else somewhere).update(names)
        return cls(frozenset(everywhere), frozenset(somewhere))

    def has(self, *names: str) -> bool:
        """Return whether one of these privileges is held on ``*.*``."""
        return not self.everywhere.isdisjoint({*names, "ALL PRIVILEGES", "ALL"})

    def has_somewhere(self, name: str) -> bool:
        """Return whether a privilege is held on ``*.*`` or on anything smaller."""
        return self.has(name) or not self.somewhere.isdisjoint({name, "ALL PRIVILEGES", "ALL"})

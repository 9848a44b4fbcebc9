"""The scratch server of a capture is emptied with the statements of its version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from prooflib.scratch import empty_source


@dataclass
class _Client:
    statements: list[str] = field(default_factory=list)

    def run(self, text: str, what: str) -> list[str]:
        assert what == "reset"
        self.statements.append(text)
        return ["mysql", "a`b"] if text == "SHOW DATABASES" else []


@pytest.mark.parametrize(
    ("version", "reset"),
    [
        ("5.7.22", "RESET MASTER"),
        ("8.0.15", "RESET MASTER"),
        ("8.0.43", "RESET MASTER"),
        ("8.4.5", "RESET BINARY LOGS AND GTIDS"),
        ("9.7.4", "RESET BINARY LOGS AND GTIDS"),
    ],
)
def test_a_source_is_emptied_with_the_words_of_its_version(version: str, reset: str) -> None:
    client: Any = _Client()
    empty_source(client, version)
    assert client.statements[1] == f"SET FOREIGN_KEY_CHECKS=0;DROP DATABASE `a``b`;{reset};"

"""The schema registry of the local stack."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from stacklib import processes, registry, stack

pytestmark = pytest.mark.stack


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


@pytest.mark.exhaustive
def test_a_registry_that_was_killed_keeps_the_ids_it_has_handed_out(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    first = registry.start(folder)
    try:
        given = call(f"{first.url}/subjects/a-value/versions", {"schema": '"string"'})["id"]
        assert call(f"{first.url}/schemas/ids/{given}") == {"schema": '"string"'}
        assert registry.start(folder) == first  # safe to repeat
        assert processes.stop("registry", folder / "process.json", 0)
        assert not registry.running(folder)
        again = registry.start(folder)
        assert again == first  # on the port that clients know
        assert call(f"{again.url}/subjects") == ["a-value"]
        assert call(f"{again.url}/subjects/a-value/versions", {"schema": '"string"'})["id"] == given
    finally:
        stack.stop_stack(tmp_path, wipe=True)
    assert not registry.running(folder) and not folder.exists()

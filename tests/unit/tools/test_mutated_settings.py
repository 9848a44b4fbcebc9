"""Properties that are cut off from the product, to see the test of each fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.cut_setting import VARIABLE
from mutatelib import cli, settings
from mutatelib.run import run_tests

from airflow_provider_mysql_cdc.cdc.config import fields as F


def test_a_property_is_cut_off_from_the_product_and_not_from_tests() -> None:
    """A test of the parser stays green; so does the test of another property's effect."""
    root, test = settings.REPOSITORY, "unit/effects/test_record_effects.py::test_a_property_changes_what_is_written"
    chosen = [f"{test}[stream]", "unit/config/test_reference.py", "unit/config/test_event_failure.py"]
    code, output = run_tests(root, chosen, 300, environment={VARIABLE: F.TOMBSTONES_ON_DELETE.name})
    assert code == 1 and "1 failed" in output and "[stream]" in output, output


def test_the_command_names_what_is_not_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        settings, "effects", lambda: {"a.b": "unit/x.py", "a.c": "unit/y.py", "a.d": "integration/z.py"}
    )
    verdicts = {"a.b": "killed", "a.c": "survived"}
    monkeypatch.setattr(settings, "cut_each", lambda chosen: ((name, verdicts[name], "why") for name in chosen))
    assert cli.main(["--settings", "--quick", "--only", "a.b"]) == 0
    assert "1/1 killed: a.b (why)\n1 killed; CPU" in capsys.readouterr().out
    assert cli.main(["--settings", "--quick"]) == 1
    assert "2/2 survived: a.c (why)\n1 killed, 1 survived" in capsys.readouterr().out
    assert settings.VARIABLE == VARIABLE and Path(settings.REPOSITORY, settings.LIST).is_file()

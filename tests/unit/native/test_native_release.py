"""The kernel that the extra ``native`` asks for is the one whose source is here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from airflow_provider_mysql_cdc.cdc.decode.native_kernel import FORM

ROOT = Path(__file__).resolve().parents[3]


def toml(path: str) -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def test_the_extra_asks_for_the_release_that_is_built_here() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (wanted,) = map(Requirement, extras["native"])
    project, package = toml("native/pyproject.toml")["project"], toml("native/Cargo.toml")["package"]
    assert wanted.name == project["name"] and project["version"] == package["version"]
    assert wanted.specifier.contains(str(project["version"]))


def test_both_sides_of_the_seam_are_of_one_form() -> None:
    source = (ROOT / "native/src/lib.rs").read_text(encoding="utf-8")
    assert [int(form, 0) for form in re.findall(r"const FORM: i64 = (\w+);", source)] == [FORM]

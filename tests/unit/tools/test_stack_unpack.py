"""Archives are unpacked below their folder alone, by Pythons with and without extraction filters (3.11.4)."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from stacklib.unpack import unpack_tar


def archive(*members: tuple[str, bytes, str]) -> tarfile.TarFile:
    """Return an open archive of (name, type, target of a link)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as made:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, target, 0o755
            content = b"text" if kind == tarfile.REGTYPE else b""
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return tarfile.open(fileobj=io.BytesIO(data.getvalue()))


@pytest.fixture(params=["with filters", "without"])
def either_python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "with filters" and not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has none")
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


@pytest.mark.usefixtures("either_python")
def test_files_folders_and_inner_links_are_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with archive(
        ("bin", tarfile.DIRTYPE, ""),
        ("bin/tool", tarfile.REGTYPE, ""),
        ("bin/tool-1", tarfile.SYMTYPE, "tool"),
        ("lib/tool", tarfile.SYMTYPE, "../bin/tool"),
        ("bin/same", tarfile.LNKTYPE, "bin/tool"),
    ) as made:
        unpack_tar(made, folder)
    assert [(folder / name).read_text() for name in ("bin/tool", "bin/tool-1", "lib/tool", "bin/same")] == ["text"] * 4


@pytest.mark.usefixtures("either_python")
@pytest.mark.parametrize(
    "member",
    [
        ("../outside", tarfile.REGTYPE, ""),
        ("bin/../../outside", tarfile.REGTYPE, ""),
        ("bin/link", tarfile.SYMTYPE, "../../outside"),
        ("bin/link", tarfile.SYMTYPE, "/etc/passwd"),
        ("bin/link", tarfile.LNKTYPE, "../outside"),
        ("device", tarfile.CHRTYPE, ""),
    ],
)
def test_what_would_lie_outside_is_refused(member: tuple[str, bytes, str], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with archive(member) as made, pytest.raises(tarfile.TarError):
        unpack_tar(made, folder)
    assert list(tmp_path.rglob("outside")) == []

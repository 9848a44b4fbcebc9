"""Unpack tar archives with every Python that this project promises; standard library only."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath


def unpack_tar(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack all members of an archive below a folder, and nothing outside of it.

    ``TarFile.extractall`` has its argument ``filter`` since Python 3.11.4; Debian 12 has 3.11.2. There, each member is
    checked here before the first one is unpacked.

    Raises:
        tarfile.TarError: A member, or what a link points to, would lie outside of the folder, or is a device.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    for member in archive.getmembers():
        _require_inside(member)
    archive.extractall(folder)


def _require_inside(member: tarfile.TarInfo) -> None:
    """Raise TarError for a member that is not a file, folder or link below the folder that it is unpacked into."""
    if not (member.isreg() or member.isdir() or member.islnk() or member.issym()):
        raise tarfile.TarError(f"{member.name} is neither a file nor a folder nor a link")
    paths = [PurePosixPath(member.name)]
    if member.islnk():  # counted from the top of the archive
        paths.append(PurePosixPath(member.linkname))
    elif member.issym():
        paths.append(PurePosixPath(member.name).parent / member.linkname)
    for path in paths:
        depth = 0
        for part in path.parts:
            depth += -1 if part == ".." else 1
            if part == "/" or depth < 0:
                raise tarfile.TarError(f"{member.name} would lie outside of the folder, or links to the outside")

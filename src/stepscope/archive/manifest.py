"""The manifest: every file of a closed run with its length and SHA-256."""

import hashlib
from pathlib import Path

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.archive.layout import FORMAT, MANIFEST, PART, SET_ASIDE
from stepscope.errors import ArchiveError

#: Files up to this size are checked whenever a run is opened; ``verify`` checks all.
CHECKED_ON_OPEN_BYTES = 8 << 20


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: its length in bytes and SHA-256 in hex."""

    n_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run directory held when it was closed."""

    format: int
    complete: bool
    files: dict[str, FileEntry]


def write_manifest(run_dir: Path, *, complete: bool) -> None:
    """Hash every file under ``run_dir`` and write the manifest."""
    files = {
        path.relative_to(run_dir).as_posix(): FileEntry(
            n_bytes=path.stat().st_size, sha256=_sha256(path)
        )
        for path in sorted(run_dir.rglob("*"))
        if path.is_file() and _belongs(path.relative_to(run_dir))
    }
    manifest = Manifest(format=FORMAT, complete=complete, files=files)
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    write_bytes(run_dir / MANIFEST, text)


def _belongs(relative: Path) -> bool:
    return (
        relative.name != MANIFEST
        and relative.suffix != PART
        and relative.parts[0] != SET_ASIDE
    )


def read_manifest(run_dir: Path) -> Manifest | None:
    """Return the manifest; None where the run was never closed.

    Raises:
        ArchiveError: It is damaged.
    """
    path = run_dir / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ArchiveError(
            str(path), f"is damaged ({error})", "", "Restore it from a copy"
        ) from error


def verify(run_dir: Path, *, up_to_bytes: int | None = None) -> int:
    """Check a closed run's files against its manifest.

    Args:
        run_dir: The run directory.
        up_to_bytes: Leave out the contents of larger files; None checks all.

    Returns:
        How many files were hashed; 0 for a run that was never closed.

    Raises:
        ArchiveError: A file is missing or differs; its name is in the text.
    """
    manifest = read_manifest(run_dir)
    n_hashed = 0
    for name, entry in manifest.files.items() if manifest else ():
        path = run_dir / name
        if not path.is_file():
            raise ArchiveError(
                str(path), "is missing", "", "Restore it from a copy of the run"
            )
        n_bytes = path.stat().st_size
        if n_bytes != entry.n_bytes:
            raise _changed(path, f"holds {n_bytes} bytes", f"{entry.n_bytes} bytes")
        if up_to_bytes is None or n_bytes <= up_to_bytes:
            n_hashed += 1
            if _sha256(path) != entry.sha256:
                raise _changed(path, "does not match its SHA-256", entry.sha256)
    return n_hashed


def _changed(path: Path, found: str, expected: str) -> ArchiveError:
    return ArchiveError(
        str(path),
        f"is damaged: it {found}",
        f"the manifest says {expected}",
        "Restore it from a copy of the run",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

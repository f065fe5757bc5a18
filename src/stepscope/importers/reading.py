"""What has been read so far of one ``import.toml``."""

from dataclasses import dataclass
from pathlib import Path

from stepscope.findings import Finding
from stepscope.importers.files import existing
from stepscope.importers.spec import ImportSpec


@dataclass(slots=True)
class Reading:
    """One ``import.toml`` at ``path``, the files it led to, and what was found."""

    path: Path
    spec: ImportSpec
    files: list[Path]
    findings: list[Finding]

    def file(self, name: str, key: str) -> Path:
        """Return a file that the spec names under ``key``, and remember it."""
        path = existing(self.path.parent / name, f"{self.path}: {key}")
        self.files.append(path)
        return path

"""NVIDIA Nsight Systems: the command lines that record a server of any engine.

The interactive form: the server is launched in a named session, and a recording is
switched on and off while it serves. Only options that nsys has had since 2022 are
used. Nothing here starts anything.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "nsys"
IMPORTER = "QdstrmImporter"
_REPORT = "timeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysOrder:
    """A session of nsys.

    Attributes:
        session: Its name; no other session of this machine has it.
        scratch: Absolute path of a folder of its own, where the parts of nsys find
            each other and where reports are written first.
        server_tmp: What the server is to find in TMPDIR: its own, not the scratch.
    """

    session: str
    scratch: str
    server_tmp: str

    @property
    def launch(self) -> tuple[str, ...]:
        """The words before a server's command.

        Of a decode graph every node is recorded: as a whole it is one box. Workers may
        be forked, so they are followed before they exec. Of the operating system's
        calls none is recorded: nothing reads them, and they slow a server that makes
        many. ``primary``: it ends when the server does, even if a worker lives on.
        """
        return (
            PROGRAM,
            "launch",
            f"--session-new={self.session}",
            "--trace=cuda,nvtx",
            "--cuda-graph-trace=node",
            "--trace-fork-before-exec=true",
            "--show-output=true",
            "--wait=primary",
            "env",
            f"TMPDIR={self.server_tmp}",
        )

    @property
    def environment(self) -> dict[str, str]:
        """What every command of the session needs; otherwise it finds none."""
        return {"TMPDIR": self.scratch}

    def file(self, suffix: str) -> Path:
        """Return what a recording is written to: ``nsys-rep``, ``qdstrm``, ``sqlite``.

        One name for all: nsys takes what follows a dot in a name for its suffix.
        """
        return Path(self.scratch) / f"{_REPORT}.{suffix}"

    @property
    def start(self) -> tuple[str, ...]:
        """The command that begins a recording; no processor is sampled."""
        return (
            PROGRAM,
            "start",
            f"--session={self.session}",
            "--sample=none",
            "--cpuctxsw=none",
            f"--output={Path(self.scratch) / _REPORT}",
            "--force-overwrite=true",
        )

    @property
    def stop(self) -> tuple[str, ...]:
        """The command that ends a recording and writes its report."""
        return (PROGRAM, "stop", f"--session={self.session}")

    @property
    def cancel(self) -> tuple[str, ...]:
        """The command that throws a recording away."""
        return (PROGRAM, "cancel", f"--session={self.session}")

    @property
    def export(self) -> tuple[str, ...]:
        """The command that turns a report into SQLite."""
        return (
            PROGRAM,
            "export",
            "--type=sqlite",
            "--force-overwrite=true",
            f"--output={self.file('sqlite')}",
            str(self.file("nsys-rep")),
        )

    def convert(self, importer: Path) -> tuple[str, ...]:
        """Return the command that turns the raw stream into a report beside it."""
        return (str(importer), "-i", str(self.file("qdstrm")))


def importer_of(program: Path) -> Path | None:
    """Return the importer that came with an nsys; None: it came without one.

    It lies in a folder ``host-...`` beside that of nsys. Some packages (Debian's) put
    only a link to nsys beside it, and there nsys itself does not find it, so every
    link on the way is looked at.
    """
    for step in _links(program):
        for host in sorted(step.parent.parent.glob("host-linux-*")):
            if os.access(host / IMPORTER, os.X_OK):
                return host / IMPORTER
    return None


def _links(path: Path) -> Iterator[Path]:
    """Yield a path and what it links to, one link at a time."""
    for _ in range(40):
        yield path
        # The folder itself may be a link, and its parent then another one.
        yield Path(os.path.realpath(path.parent)) / path.name
        try:
            to = path.readlink()
        except OSError:
            return
        path = Path(os.path.normpath(path.parent / to))

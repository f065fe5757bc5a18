"""A finding: something the evidence says that a reader must know.

Findings are returned as data by every room and printed only by reports.
"""

from typing import Literal

import msgspec

Severity = Literal["info", "warning", "error"]

#: Codes that void a cell (design.md, section 2). A void cell may convict the client
#: and support nothing else.
VOID_CODES = frozenset(
    {"client-bound", "little-violated", "token-count-mismatch", "clock-step"}
)


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement about a run, with what the reader can do about it.

    Attributes:
        code: Stable identifier, such as ``partial-waves``.
        severity: ``info``, ``warning`` or ``error``.
        message: What was seen, with its numbers and units.
        hint: What to do; empty when nothing is to be done.
        cell: Name of the cell that it concerns; None for the whole run.
        launch: Name of the launch that it concerns; None when it is not about one.
        voids: True when the finding makes its cell void. ``client-bound`` warns
            above 3 % and voids above 5 %, so the code alone does not decide.
    """

    code: str
    severity: Severity
    message: str
    hint: str = ""
    cell: str | None = None
    launch: str | None = None
    voids: bool = False

    def __post_init__(self) -> None:
        if self.voids and self.code not in VOID_CODES:
            raise ValueError(f"{self.code} can not void a cell")

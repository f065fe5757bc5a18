"""How a rule says what it found about a cell."""

from stepscope.analysis.cell.measured import Measured
from stepscope.findings import Finding, Severity


def about(
    m: Measured,
    code: str,
    message: str,
    hint: str = "",
    *,
    severity: Severity = "warning",
    voids: bool = False,
) -> Finding:
    """Return a finding on the cell; one that voids it is an error."""
    return Finding(
        code=code,
        severity="error" if voids else severity,
        message=message,
        hint=hint,
        cell=m.cell.name,
        voids=voids,
    )

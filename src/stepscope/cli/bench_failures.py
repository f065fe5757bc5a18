"""What ``bench`` says of failed requests: loudly, since it ends with 0 all the same.

``vllm bench serve`` ends with 0 whatever failed, and scripts rely on that; we do as
long as one request succeeded.
"""

from collections.abc import Mapping
from typing import Any

from stepscope.findings import Finding


def failed_requests(result: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the finding about a saved result's failed requests; none: no finding."""
    n, total = result["failed"], result["failed"] + result["completed"]
    if not n:
        return ()
    kinds = sorted(result["failures"].items(), key=lambda pair: -pair[1])
    words = ", ".join(f"{count} {kind}" for kind, count in kinds)
    where = "".join(
        f"; {one['failed']} of {one['failed'] + one['completed']} at {one['base_url']}"
        for one in result["replicas"]
        if one["failed"]
    )
    return (
        Finding(
            code="failed-requests",
            severity="error" if n == total else "warning",
            message=f"{n} of {total} requests failed ({words}{where}); they are in no"
            " latency, and while they failed the load was thinner",
            hint="Read errors in the result (--save-detailed), mend that, and repeat.",
        ),
    )

"""What ``bench`` learns from the server's own metrics, asked before and after."""

from typing import Any

import msgspec

from stepscope.clock import Clock
from stepscope.findings import Finding
from stepscope.load.server_tpot import Decoded, server_tpot, settled
from stepscope.load.spec import LoadSpec
from stepscope.load.speculation import drafts, speculation
from stepscope.load.tpot_gap import tpot_gap
from stepscope.run.client import ClientHealth
from stepscope.run.samples import MetricsSnapshot

Scrapes = tuple[MetricsSnapshot | None, MetricsSnapshot | None]


def told_by_server(
    spec: LoadSpec, scrapes: Scrapes, mine: Decoded, health: ClientHealth, clock: Clock
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return fields of the result, and what is to be said of them.

    Args:
        spec: The cell's load.
        scrapes: Of its servers, before and after it.
        mine: What the client saw of the time between tokens.
        health: What it says of itself.
        clock: To wait for requests that the server has not counted yet.
    """
    before = scrapes[0]
    after = settled(spec, before, scrapes[1], mine, clock)
    own = server_tpot(before, after, mine)
    fields = {
        "server": msgspec.to_builtins(own),
        **speculation(drafts(before), drafts(after)),
    }
    return fields, tpot_gap(own, mine, health, spec.base_urls)

"""What servers say of themselves at ``/metrics``, asked before a cell and after it."""

import msgspec

from stepscope.clock import Clock
from stepscope.load.ask import ask_text
from stepscope.load.prompts import server_of
from stepscope.load.spec import LoadSpec
from stepscope.parse.prometheus import parse_metrics
from stepscope.run.samples import MetricsSnapshot, MetricValue


def scrape(spec: LoadSpec, clock: Clock) -> MetricsSnapshot | None:
    """Return the metrics of all of a cell's servers together.

    None where one of them says nothing: a sum without it would be a part of the load.
    """
    values: list[MetricValue] = []
    for url in spec.base_urls:
        one = msgspec.structs.replace(spec, base_url=url, replicas=())
        text = ask_text(server_of(one), "/metrics")
        if text is None:
            return None
        values += parse_metrics(text)
    return MetricsSnapshot(at_ns=clock.now_ns(), values=tuple(values))

"""Did the server's threads get the processors that they asked for?"""

from collections.abc import Iterator

from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.processes import process_cpu
from stepscope.analysis.cell.saying import about
from stepscope.findings import Finding

#: A step can be longer by as much as its thread waited. Runs on a machine that is
#: shared differ by several percent anyway; a tenth is beyond that.
STARVED_PCT = 10.0
#: A thread that polls and yields is ready nearly always and runs next to never, alone
#: on its core or not (vLLM's engine core, 97 and 3 %): that is no want of a core.
_ALWAYS_READY_PCT, _HARDLY_RUNS_PCT = 90.0, 10.0
#: Neither is a part of the server that a token passes through.
_NOT_THE_SERVER = frozenset({"client", "guard", "other"})


def starved(m: Measured) -> Iterator[Finding]:
    """Threads of the server that were ready to run and had no core."""
    if m.window is None:
        return
    cpu = process_cpu(m.machine.samples.process, m.window)
    for role, waited in sorted(cpu.busiest_waited.items()):
        ran = cpu.busiest_thread[role]
        if waited < STARVED_PCT or role in _NOT_THE_SERVER:
            continue
        if ran + waited >= _ALWAYS_READY_PCT and ran < _HARDLY_RUNS_PCT:
            continue
        yield about(
            m,
            "cpu-starved",
            f"the busiest thread of the {role} was ready to run and had no core for"
            f" {waited:.0f} % of the window, and ran for"
            f" {ran:.0f} %: other threads, its own or not, held its processors",
            "Give the server more processors, and of its own (cpus in the recipe), end"
            " what else runs there, and repeat the cell.",
        )

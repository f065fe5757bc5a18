"""Every hypothesis with its rules: the one place where they are listed."""

from stepscope.board.experiments.rule import with_experiment
from stepscope.board.hypotheses.bandwidth import BANDWIDTH
from stepscope.board.hypotheses.client import CLIENT
from stepscope.board.hypotheses.compute import COMPUTE
from stepscope.board.hypotheses.frontend import FRONTEND
from stepscope.board.hypotheses.host_memory import HOST_MEMORY
from stepscope.board.hypotheses.kv_capacity import KV_CAPACITY
from stepscope.board.hypotheses.launching import GRAPH_LAUNCH, KERNEL_GAPS, LAUNCH
from stepscope.board.hypotheses.power import POWER
from stepscope.board.hypotheses.prefill import PREFILL
from stepscope.board.hypotheses.ranks import COMMUNICATION, IMBALANCE, RANK_WAIT
from stepscope.board.hypotheses.scheduler import SCHEDULER
from stepscope.board.hypotheses.warm_up import WARM_UP
from stepscope.board.opinion import Hypothesis

#: In the order in which the board prints them. What experiments say comes last of the
#: rules of each hypothesis that they reach.
_OWN: dict[str, Hypothesis] = {
    "client": CLIENT,
    "frontend": FRONTEND,
    "scheduler": SCHEDULER,
    "launch": LAUNCH,
    "graph-launch": GRAPH_LAUNCH,
    "kernel-gaps": KERNEL_GAPS,
    "rank-wait": RANK_WAIT,
    "imbalance": IMBALANCE,
    "communication": COMMUNICATION,
    "bandwidth": BANDWIDTH,
    "compute": COMPUTE,
    "power": POWER,
    "kv-capacity": KV_CAPACITY,
    "host-memory": HOST_MEMORY,
    "prefill": PREFILL,
    "warm-up": WARM_UP,
}
RULES: dict[str, Hypothesis] = {
    name: with_experiment(hypothesis) for name, hypothesis in _OWN.items()
}

"""Keep one GPU busy for a share of the time, so that the rank on it is slow.

    python slow_rank.py --gpu 1 [--busy 0.5] [--seconds 600]

Products of large matrices in slices of 2 ms: while one runs, the kernels of the rank
share its multiprocessors or wait for it. Needs torch, which an engine on a GPU brings.
"""

import argparse
import time

import torch

_SIDE = 4096
_SLICE_S = 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, required=True)
    parser.add_argument("--busy", type=float, default=0.5, help="share of the time")
    parser.add_argument("--seconds", type=float, default=600.0)
    flags = parser.parse_args()
    if not 0 < flags.busy <= 1:
        parser.error(f"--busy {flags.busy}; expected a share above 0, at most 1")
    left, right = (
        torch.ones(_SIDE, _SIDE, dtype=torch.bfloat16, device=f"cuda:{flags.gpu}")
        for _ in range(2)
    )
    until = time.monotonic() + flags.seconds
    while time.monotonic() < until:
        began = time.monotonic()
        while time.monotonic() - began < _SLICE_S:
            torch.mm(left, right)
            torch.cuda.synchronize(flags.gpu)
        spent = time.monotonic() - began
        time.sleep(spent * (1 - flags.busy) / flags.busy)


if __name__ == "__main__":
    main()

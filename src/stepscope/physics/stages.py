"""How layers are dealt to pipeline stages."""


def stage_of(n_layers: int, pp: int) -> tuple[int, ...]:
    """Return the stage of each layer.

    Source: vLLM's split: equal stages, left-over layers to the stages before the last.
    """
    sizes = [n_layers // pp] * pp
    for i in range(2, n_layers % pp + 2):
        sizes[-i if pp > 1 else 0] += 1
    return tuple(stage for stage, size in enumerate(sizes) for _ in range(size))

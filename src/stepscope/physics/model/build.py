"""Collects a model's weights and caches, layer by layer."""

from dataclasses import dataclass, field

from stepscope.physics.model.config import Config
from stepscope.physics.model.quantization import Quantization
from stepscope.physics.model.records import Cache, Read, Split, Weight


@dataclass(slots=True)
class Builder:
    """A model under construction. ``layer`` is the layer that is being described."""

    config: Config
    quant: Quantization
    layer: int | None = None
    n_expert_params: int = 0
    expert_bytes: float = 0.0
    weights: list[Weight] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = "tp",
        *,
        role: str = "linear",
        n_heads: int = 0,
    ) -> None:
        """Add a matrix that every step reads whole.

        Args:
            name: Module below the layer.
            shape: Outputs, inputs.
            split: How it divides over ranks.
            role: ``linear`` or ``plain`` (never quantized).
            n_heads: KV heads, for the split ``kv``.
        """
        rows, columns = shape
        form = self.quant.form(self._full(name), role)
        self._add(
            name, rows * columns, form.n_bytes(rows, columns), split, n_heads=n_heads
        )

    def vector(
        self, name: str, n: int, split: Split = "replicated", *, n_bytes: float = 0.0
    ) -> None:
        """Add ``n`` numbers that are never quantized: norms, biases, scalars."""
        if n:
            width = n_bytes or self.quant.plain.bits / 8
            self._add(name, n, n * width, split)

    def experts(self, n: int, shapes: tuple[tuple[int, int], ...], n_bias: int) -> None:
        """Add the routed experts of this layer, all of one form.

        Args:
            n: How many.
            shapes: Outputs and inputs of the matrices of one.
            n_bias: Biases of one.
        """
        form = self.quant.form(self._full("mlp.experts"), "experts")
        params = sum(rows * columns for rows, columns in shapes) + n_bias
        n_bytes = sum(form.n_bytes(rows, columns) for rows, columns in shapes)
        n_bytes += n_bias * self.quant.plain.bits / 8
        self.n_expert_params, self.expert_bytes = params, n_bytes
        self._add("mlp.experts", n * params, n * n_bytes, "experts", read="coverage")

    def table(
        self, name: str, shape: tuple[int, int], rows_per_token: int, row_bytes: float
    ) -> None:
        """Add a table of which a token gathers some rows.

        A layer's table is spread over all ranks of a node, as engines do.
        """
        rows, columns = shape
        split: Split = "tp" if self.layer is None else "experts"
        self.weights.append(
            Weight(
                name=name, layer=self.layer, n_params=rows * columns,
                n_bytes=rows * row_bytes, split=split, read="gather",
                n_rows=rows, rows_per_token=rows_per_token,
            )
        )  # fmt: skip

    def cache(self, cache: Cache) -> None:
        """Add a cache."""
        self.caches.append(cache)

    def _add(
        self,
        name: str,
        n_params: int,
        n_bytes: float,
        split: Split,
        *,
        read: Read = "step",
        n_heads: int = 0,
    ) -> None:
        self.weights.append(
            Weight(
                name=name, layer=self.layer, n_params=n_params, n_bytes=n_bytes,
                split=split, read=read, n_heads=n_heads,
            )
        )  # fmt: skip

    def _full(self, name: str) -> str:
        if self.layer is None:
            return name
        return f"model.layers.{self.layer}.{name}"

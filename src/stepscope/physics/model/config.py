"""Fields of a config.json, by any of the names under which models keep them."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepscope.errors import RecipeError

#: Where multimodal configs keep the language model.
NESTS = ("text_config", "language_config", "llm_config", "thinker_config")

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk")
EXPERT_WIDTH = ("moe_intermediate_size", "expert_intermediate_size")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")


@dataclass(slots=True)
class Config:
    """The language part of a config.json, and the assumptions made in reading it."""

    where: str
    fields: dict[str, Any]
    outer: dict[str, Any]
    assumptions: list[str] = field(default_factory=list)

    def get(self, *names: str) -> Any:
        """Return the first of ``names`` that is there and not null, or None."""
        for name in names:
            value = self.fields.get(name)
            if value is not None:
                return value
        return None

    def count(self, *names: str, default: int | None = None) -> int:
        """Return a whole number of 0 or more.

        Raises:
            RecipeError: It is absent without a default, or no such number.
        """
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise RecipeError(
                    f"{self.where}: {name}",
                    f"{value!r}",
                    "a whole number of 0 or more",
                )
            return value
        if default is None:
            raise self.missing(names)
        return default

    def maybe(self, *names: str) -> int | None:
        """Return a whole number of 0 or more, or None where it is absent."""
        if self.get(*names) is None:
            return None
        return self.count(*names)

    def counts(self, *names: str) -> list[int] | None:
        """Return a list of whole numbers, or None where it is absent.

        Raises:
            RecipeError: It is there and is no such list.
        """
        value = self.get(*names)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(v, int) and not isinstance(v, bool) for v in value
        ):
            raise RecipeError(
                f"{self.where}: {names[0]}", f"{value!r}", "a list of whole numbers"
            )
        return value

    def texts(self, *names: str) -> list[str] | None:
        """Return a list of words, or None where it is absent.

        Raises:
            RecipeError: It is there and is no such list.
        """
        value = self.get(*names)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise RecipeError(
                f"{self.where}: {names[0]}", f"{value!r}", "a list of words"
            )
        return value

    def part(self, *names: str) -> "Config | None":
        """Return an object inside this one, or None where it is absent or empty.

        Raises:
            RecipeError: It is there and is no object.
        """
        value = self.get(*names)
        if value is None or value == {}:
            return None
        where = f"{self.where}: {names[0]}"
        if not isinstance(value, dict):
            raise RecipeError(where, f"{value!r}", "an object")
        return Config(where, value, self.outer, self.assumptions)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a switch."""
        value = self.get(*names)
        return default if value is None else bool(value)

    def assume(self, sentence: str) -> None:
        """Note once what the config does not say."""
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)

    def missing(self, names: tuple[str, ...]) -> RecipeError:
        """Return the error for a field that is nowhere."""
        return RecipeError(
            self.where,
            f"no field {names[0]}",
            f"expected {' or '.join(names)}" if len(names) > 1 else "",
            "Give the config.json of the model itself",
        )


def read_config(text: str, where: str) -> Config:
    """Parse a config.json and descend to its language model.

    Args:
        text: The file's text.
        where: What to call it in errors.

    Raises:
        RecipeError: It is no JSON object.
    """
    try:
        outer = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise RecipeError(
            where, f"no JSON ({error})", "a model's config.json"
        ) from error
    if not isinstance(outer, dict):
        raise RecipeError(where, "JSON, but no object", "a model's config.json")
    fields = outer
    config = Config(where, fields, outer)
    for nest in (*NESTS, *NESTS):
        inner = fields.get(nest)
        if isinstance(inner, dict):
            shared = {k: v for k, v in fields.items() if k not in NESTS}
            fields = {**shared, **inner}
            config.assume(
                "Only the language model is counted; towers for images or sound are"
                " read in prefill alone."
            )
    config.fields = fields
    return config

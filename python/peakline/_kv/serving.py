"""The arithmetic of serving: what is left beside weights and activations, in blocks of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peakline._kv.caches import Layer

_SEGMENT = 2 << 20  # large allocations are rounded up to this


@dataclass(frozen=True)
class Serving:
    """Bytes of a GPU, and what fits the rest of them."""

    memory: int  # the allocator's
    beside: int  # weights and activations, as reserved
    layers: list[Layer]
    block: int  # tokens that are allocated together
    length: int  # of a request

    @property
    def pool(self) -> int:
        """What is left for the cache, as the allocator can take it in one piece."""
        return max(0, self.memory - self.beside) // _SEGMENT * _SEGMENT

    @property
    def bytes_per_token(self) -> float:
        return sum(layer.per_token for layer in self.layers)

    @property
    def blocks(self) -> int:
        each = self.bytes_per_token * self.block
        return int(self.pool // each) if each else 0

    @property
    def tokens(self) -> int:
        return self.blocks * self.block

    @property
    def bytes_per_request(self) -> float:
        return sum(
            layer.per_token * _whole_blocks(_kept(layer, self.length), self.block)
            for layer in self.layers
        )

    @property
    def requests(self) -> int:
        each = self.bytes_per_request
        return int(self.pool // each) if each else 0


def _kept(layer: Layer, length: int) -> int:
    return min(length, layer.window) if layer.window else length


def _whole_blocks(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


def sharded(words: dict[str, object], parts: int) -> dict[str, object]:
    """The configuration of one of `parts` shards of a tensor parallel model.

    Heads, feed-forward width and vocabulary are divided, as serving engines do; heads of keys and
    values that are fewer than the shards are repeated. Raises ValueError where heads do not divide.
    """
    if parts == 1:
        return words
    made = dict(words)
    text = made.get("text_config")
    if isinstance(text, dict):
        made["text_config"] = sharded(text, parts)
        return made
    heads = _number(made, "num_attention_heads")
    if heads % parts:
        raise ValueError(f"{heads} attention heads cannot be divided among {parts} shards")
    made.setdefault("head_dim", _number(made, "hidden_size") // heads)
    kv = made.get("num_key_value_heads") or heads
    made["num_attention_heads"] = heads // parts
    made["num_key_value_heads"] = max(1, _whole(kv) // parts)
    for name in ("intermediate_size", "moe_intermediate_size", "vocab_size"):
        if made.get(name):
            made[name] = -(-_whole(made[name]) // parts)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        made.pop(name, None)  # they may be of another shard's part of the vocabulary
    return made


def _number(words: dict[str, object], name: str) -> int:
    if name not in words:
        raise ValueError(f"the configuration has no {name}, so it cannot be divided")
    return _whole(words[name])


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"a configuration's sizes are whole numbers, and this one has {value!r}")
    return value


def total(layers: Iterable[Layer]) -> int:
    return sum(layer.bytes for layer in layers)

"""The arithmetic of `peakline kv`, without a model."""

import pytest

from peakline._kv.caches import Layer
from peakline._kv.serving import Serving, sharded

GIB = 1 << 30
# As Llama 3.1 8B: 32 layers, 8 heads of 128 for keys and values, two bytes each.
LLAMA = [Layer(bytes=4096 * 1000, tokens=1000) for _ in range(32)]
CONFIG: dict[str, object] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def test_what_is_left_beside_weights_and_activations_is_cache() -> None:
    found = Serving(80 * GIB, 16 * GIB, LLAMA, block=16, length=8192)
    assert found.pool == 64 * GIB
    assert found.bytes_per_token == 128 * 1024
    assert found.tokens == 64 * GIB // (128 * 1024)
    assert found.requests == 64


def test_a_request_takes_whole_blocks() -> None:
    found = Serving(17 * GIB, 16 * GIB, LLAMA, block=256, length=1025)
    assert found.bytes_per_request == 1280 * 128 * 1024
    assert found.requests == GIB // (1280 * 128 * 1024)


def test_a_sliding_window_keeps_no_more_than_itself() -> None:
    layers = [*LLAMA[:16], *(Layer(4096 * 1000, 1000, window=1024) for _ in range(16))]
    found = Serving(80 * GIB, 16 * GIB, layers, block=16, length=8192)
    assert found.bytes_per_request == 16 * 4096 * (8192 + 1024)


def test_weights_that_fill_the_memory_leave_nothing() -> None:
    found = Serving(8 * GIB, 16 * GIB, LLAMA, block=16, length=8192)
    assert (found.pool, found.tokens, found.requests) == (0, 0, 0)


def test_a_shard_has_its_part_of_heads_and_widths() -> None:
    shard = sharded(CONFIG, 4)
    assert shard["num_attention_heads"] == 8
    assert shard["num_key_value_heads"] == 2
    assert shard["head_dim"] == 128
    assert shard["intermediate_size"] == 3584
    assert shard["vocab_size"] == 32064
    assert shard["hidden_size"] == 4096


def test_heads_of_keys_that_are_fewer_than_the_shards_are_repeated() -> None:
    assert sharded(CONFIG, 16)["num_key_value_heads"] == 1


def test_heads_that_cannot_be_divided_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="32 attention heads cannot be divided among 3 shards"):
        sharded(CONFIG, 3)
    with pytest.raises(ValueError, match="has no num_attention_heads"):
        sharded({"hidden_size": 64}, 2)


def test_one_shard_is_the_model_itself() -> None:
    assert sharded(CONFIG, 1) == CONFIG


def test_the_cache_is_as_large_as_the_allocator_can_take_it_in_one_piece() -> None:
    found = Serving(17 * GIB + 3_000_000, 16 * GIB, LLAMA, block=16, length=8192)
    assert found.pool == GIB + (2 << 20)

"""Checkpoints are read in every spelling, or refused with a sentence that says what is wrong."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from jinja2 import TemplateError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from baton.engine.checkpoint.model_config import read_config
from baton.engine.checkpoint.rope_config import LongRope, Rope, YarnRope
from baton.engine.support.documents import CheckpointError
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.engine.testing.random_tokenizer import SPECIAL_TOKENS
from baton.engine.torch.checkpoint import read_weights, weights_digest
from tests.support.clock import slowness

EditedCheckpoint = Callable[..., Path]
CPU = torch.device("cpu")


def load(path: Path) -> None:
    read_weights(path, read_config(path), torch.float32, CPU)


def test_both_spellings_of_config_say_the_same(edited_checkpoint: EditedCheckpoint) -> None:
    path = edited_checkpoint()
    new = read_config(path)
    edited_checkpoint(
        rope_parameters=None,
        rope_theta=10_000.0,
        rope_scaling=None,
        dtype=None,
        torch_dtype="float32",
    )
    assert read_config(path) == new
    edited_checkpoint(rope_parameters=None, rope_theta=10_000.0, head_dim=None)
    assert read_config(path) == new


def test_the_stretching_of_older_checkpoints_is_read(edited_checkpoint: EditedCheckpoint) -> None:
    scaling = {
        "type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    }
    path = edited_checkpoint(rope_parameters=None, rope_theta=5e5, rope_scaling=scaling)
    assert read_config(path).rope == Rope(5e5, "llama3", 32.0, 1.0, 4.0, 2048)


def test_yarn_is_read_as_qwen_deepseek_and_gpt_oss_write_it(
    edited_checkpoint: EditedCheckpoint,
) -> None:
    plain = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    for fields, expected in (
        ({}, YarnRope(1e4, "yarn", 4.0, 1.0, 4.0, 1024, 0.1 * math.log(4) + 1)),
        (
            {"mscale": 1.0, "mscale_all_dim": 0.707, "beta_fast": 16, "beta_slow": 2},
            YarnRope(
                1e4,
                "yarn",
                4.0,
                1.0,
                4.0,
                1024,
                (0.1 * math.log(4) + 1) / (0.0707 * math.log(4) + 1),
                16.0,
                2.0,
            ),
        ),
        (
            {"attention_factor": 1.5, "truncate": False},
            YarnRope(1e4, "yarn", 4.0, 1.0, 4.0, 1024, 1.5, truncate=False),
        ),
        ({"factor": None}, YarnRope(1e4, "yarn", 4.0, 1.0, 4.0, 1024, 0.1 * math.log(4) + 1)),
    ):
        path = edited_checkpoint(rope_parameters=plain | fields)
        assert read_config(path).rope == expected
        assert read_config(path).context_tokens == 4096


@pytest.mark.parametrize("spelling", ["longrope", "su", "yarn"])
def test_longrope_has_short_factors_unless_the_engines_context_needs_long_ones(
    edited_checkpoint: EditedCheckpoint, spelling: str
) -> None:
    short, long = (1.0,) * 8, (1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0)
    path = edited_checkpoint(
        rope_parameters=None,
        rope_scaling={"type": spelling, "short_factor": short, "long_factor": long},
        original_max_position_embeddings=1024,
    )
    for context, pairs, tokens in ((0, short, 1024), (1024, short, 1024), (1025, long, 4096)):
        config = read_config(path, context)
        assert config.context_tokens == tokens
        assert isinstance(config.rope, LongRope)
        assert config.rope.pair_factors == pairs
        assert config.rope.attention_factor == math.sqrt(1 + math.log(4) / math.log(1024))
    assert weights_digest(path, read_config(path)) != weights_digest(path, read_config(path, 1025))


def test_ends_of_sequence_come_from_generation_config_first(
    edited_checkpoint: EditedCheckpoint,
) -> None:
    path = edited_checkpoint(eos_token_id=9)
    assert read_config(path).eos_token_ids == (511, 509)
    (path / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert read_config(path).eos_token_ids == (3,)
    (path / "generation_config.json").unlink()
    assert read_config(path).eos_token_ids == (9,)
    edited_checkpoint(eos_token_id=None)
    (path / "generation_config.json").unlink()
    assert read_config(path).eos_token_ids == ()


def test_what_this_engine_does_not_have_is_refused_by_name(
    edited_checkpoint: EditedCheckpoint,
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"architectures": ["CohereForCausalLM"]}, "CohereForCausalLM"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope scaling dynamic"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 0.0}}, "not positive"),
        ({"rope_parameters": {"rope_type": "yarn", "beta_fast": "x"}}, "beta_fast"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "need 8 numbers each"),
        ({"rope_parameters": {"rope_theta": 1.0, "partial_rotary_factor": 0.45}}, "partial_rotary"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"dtype": "float8"}, "float8"),
        ({"sliding_window": 0}, "sliding_window 0"),
        ({"swiglu_limit": 5.0}, "swiglu_limit"),
        ({"num_key_value_heads": 3}, "sizes"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"hidden_size": None}, "hidden_size"),
    ]
    for fields, name in cases:
        path = edited_checkpoint(**fields)
        with pytest.raises(CheckpointError, match=name) as caught:
            read_config(path)
        assert str(path / "config.json") in str(caught.value)


def test_a_window_that_covers_the_context_is_loaded(edited_checkpoint: EditedCheckpoint) -> None:
    plain = read_config(edited_checkpoint())
    path = edited_checkpoint(architectures=["MistralForCausalLM"], sliding_window=4096)
    assert read_config(path) == plain
    load(path)
    edited_checkpoint(architectures=["MistralForCausalLM"], sliding_window=128)
    assert read_config(path).options.windows == (128, 128)
    assert read_config(path, 128) == plain


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    path = write_random_checkpoint(tmp_path / "model", shards=2)
    shard = path / "model-00002-of-00002.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=shard.name):
        load(path)
    shard.unlink()
    for read in (load, lambda path: weights_digest(path, read_config(path))):
        with pytest.raises(CheckpointError, match=shard.name):
            read(path)
    index = path / "model.safetensors.index.json"
    for text in ("{", "[]", "{}", '{"weight_map": {"a": "../b"}}', '{"weight_map": {"a": 1}}'):
        index.write_text(text)
        with pytest.raises(CheckpointError, match=index.name):
            load(path)
    index.unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        load(path)
    (path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        load(path)


def test_tensors_that_are_missing_strange_or_misshapen_are_named(tmp_path: Path) -> None:
    path = write_random_checkpoint(tmp_path / "model")
    file = path / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    name = "model.layers.1.mlp.up_proj.weight"

    def check(changed: dict[str, torch.Tensor], named: str) -> None:
        save_file(changed, file)
        with pytest.raises(CheckpointError, match=named):
            load(path)

    check({key: value for key, value in tensors.items() if key != name}, name)
    check(tensors | {"model.layers.0.extra.weight": torch.zeros(1)}, "extra")
    check(tensors | {name: tensors[name][:-1].clone()}, name)
    save_file(tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(1)}, file)
    load(path)


def test_an_output_layer_that_config_leaves_open_is_tied_if_it_is_not_there(
    tmp_path: Path,
) -> None:
    for tied in (False, True):
        path = write_random_checkpoint(tmp_path / str(tied), tied=tied)
        config = json.loads((path / "config.json").read_text())
        del config["tie_word_embeddings"]
        (path / "config.json").write_text(json.dumps(config))
        weights = read_weights(path, read_config(path), torch.float32, CPU)
        assert (weights.head.weight is weights.embedding) == tied


def test_the_digest_names_weights_and_configuration(tmp_path: Path) -> None:
    one = write_random_checkpoint(tmp_path / "one", seed=1)
    same = write_random_checkpoint(tmp_path / "same", seed=1)
    other = write_random_checkpoint(tmp_path / "other", seed=2)
    digest = weights_digest(one, read_config(one))
    assert len(digest) == 16
    assert weights_digest(same, read_config(same)) == digest
    assert weights_digest(other, read_config(other)) != digest
    config = json.loads((same / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 20_000.0
    (same / "config.json").write_text(json.dumps(config))
    assert weights_digest(same, read_config(same)) != digest


@pytest.mark.serial
def test_random_checkpoints_are_made_fast_and_the_same_every_time(tmp_path: Path) -> None:
    began = time.process_time()
    write_random_checkpoint(tmp_path / "a", shards=2)
    assert time.process_time() - began < 2 * slowness()
    write_random_checkpoint(tmp_path / "b", shards=2)
    files = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert len(files) == 7
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_tokenizer_brings_every_text_back(checkpoints: dict[str, Path]) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoints["llama"] / "tokenizer.json"))
    for text in ("", "Hello, wörld!", "  two  spaces\n\t", "你好 🙂 \x00\x7f", "<|im_start|>user"):
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert [tokenizer.encode(token).ids for token in SPECIAL_TOKENS] == [[509], [510], [511]]
    assert tokenizer.get_vocab_size() == 512


@pytest.mark.xdist_group("transformers")
def test_transformers_renders_the_chat_template(checkpoints: dict[str, Path]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoints["llama"])
    roles = ("system", "user", "assistant", "tool")
    messages = [{"role": role, "content": f"from {role}"} for role in roles]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    turns = "".join(f"<|im_start|>{role}\nfrom {role}<|im_end|>\n" for role in roles)
    assert text == f"{turns}<|im_start|>assistant\n"
    with pytest.raises(TemplateError, match="unknown role"):
        tokenizer.apply_chat_template([{"role": "nobody", "content": ""}], tokenize=False)


def test_sizes_that_make_no_model_are_refused(tmp_path: Path) -> None:
    for wrong in (
        {"family": "gpt"},
        {"dtype": "int8"},
        {"vocab": 258},
        {"heads": 3, "kv_heads": 2},
        {"head_size": 3},
        {"shards": 0},
    ):
        with pytest.raises(ValueError):
            write_random_checkpoint(tmp_path / "model", **wrong)  # type: ignore[arg-type]

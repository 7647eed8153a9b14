"""Engines come out of settings, or a sentence that says what to change."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from baton.engine import factory
from baton.engine.base import ContextLimit
from baton.engine.checkpoint.model_config import read_config
from baton.engine.checkpoint.sizing import check_memory
from baton.engine.factory import create_engine
from baton.engine.torch.operators import choose_kernels
from baton.settings import EngineSettings, StartupError

MIB = 1024 * 1024


def engine_settings(**fields: object) -> EngineSettings:
    return EngineSettings.model_validate(fields)


def test_what_does_not_go_together_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    model = checkpoints["llama"]
    for fields, said in [
        ({"kind": "torch"}, "BATON_ENGINE_MODEL"),
        ({"model": tmp_path / "nowhere"}, "config.json is missing"),
        ({"kind": "sim", "model": tmp_path / "nowhere"}, "config.json is missing"),
        ({"model": model, "context_tokens": 4097}, "4096"),
        ({"model": model, "context_tokens": 4096, "kv_bytes": 2**20}, "BATON_ENGINE_KV_BYTES"),
        ({"model": model, "device": "cuda"}, "CUDA"),
        ({"model": model, "tensor_parallel": 2}, "torch does not support tensor_parallel"),
        ({"kind": "sim", "speculative_tokens": 2}, "sim does not support speculative_tokens"),
        ({"kind": "sim", "vllm_args": {"a": 1}}, "sim does not support vllm_args"),
        ({"model": model, "block_tokens": 32}, "torch does not support block_tokens"),
    ]:
        with pytest.raises(StartupError, match=said):
            create_engine(engine_settings(**fields))


def test_a_block_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    from baton.engine.testing.random_checkpoint import write_random_checkpoint

    model = write_random_checkpoint(tmp_path, heads=4, kv_heads=4, head_size=128, layers=3)
    with pytest.raises(StartupError, match="one KV block"):
        create_engine(engine_settings(model=model, kv_bytes=64 * 1024))


def test_the_engine_says_what_it_is(checkpoints: dict[str, Path]) -> None:
    plain = {"model": checkpoints["qwen3"], "native": "off"}
    info = create_engine(engine_settings(**plain, kv_bytes=2**20)).info
    assert (info.layout.engine, info.layout.backend, info.layout.dtype) == (
        "torch/1",
        "cpu",
        "float32",
    )
    assert (info.layout.layers, info.layout.kv_heads, info.layout.head_size) == (3, 2, 24)
    assert info.block_bytes == 3 * 2 * 16 * 2 * 24 * 4
    # What the pages hold, where that is less than the model's context.
    assert info.context_tokens == 2**20 // info.block_bytes * 16 < 4096
    assert info.context_limit is ContextLimit.KV_MEMORY
    assert info.checkpoint_context_tokens == 4096
    assert info.vocab_tokens == 512
    assert info.eos_token_ids == (511, 509)
    double = create_engine(engine_settings(**plain, dtype="float64"))
    assert double.info.layout.layout_id != info.layout.layout_id
    assert double.info.weights_digest == info.weights_digest
    assert double.info.context_tokens == 4096
    assert double.info.context_limit is ContextLimit.CHECKPOINT


def test_compiled_operators_have_a_layout_of_their_own(
    native_library: Path, checkpoints: dict[str, Path]
) -> None:
    fields = {"model": checkpoints["qwen3"], "kv_bytes": 2**20}
    plain = create_engine(engine_settings(**fields, native="off")).info
    compiled = create_engine(engine_settings(**fields, native="required")).info
    assert compiled.layout == replace(plain.layout, engine="torch-native/1")
    assert compiled.layout.layout_id != plain.layout.layout_id
    assert compiled.block_bytes == plain.block_bytes


def test_a_context_that_is_set_is_said_to_be(checkpoints: dict[str, Path]) -> None:
    for kind in ("torch", "sim"):
        fields = {"kind": kind, "model": checkpoints["llama"], "context_tokens": 100}
        info = create_engine(engine_settings(**fields)).info
        assert (info.context_tokens, info.context_limit) == (100, ContextLimit.SETTING)
        assert info.checkpoint_context_tokens == 4096


def test_the_simulator_needs_no_model_and_takes_one_s_vocabulary(
    checkpoints: dict[str, Path],
) -> None:
    bare = create_engine(engine_settings(kind="sim", kv_bytes=2**20)).info
    assert (bare.vocab_tokens, bare.context_tokens) == (32_000, 32_768)
    like = create_engine(engine_settings(kind="sim", model=checkpoints["llama"])).info
    assert (like.vocab_tokens, like.context_tokens) == (512, 4096)
    assert like.weights_digest != bare.weights_digest
    assert like.layout == bare.layout


def test_pages_and_weights_must_fit_the_memory_of_the_cgroup(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(MIB))
    settings = EngineSettings(model=tmp_path, kv_bytes=3 * MIB)
    check_memory(settings, lambda: None)
    check_memory(settings, lambda: 4 * MIB)
    with pytest.raises(StartupError, match=r"3 MiB.*1 MiB.* limit of 3 MiB.*ENGINE_KV_BYTES"):
        check_memory(settings, lambda: 4 * MIB - 1)


def test_memory_is_checked_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "check_memory", partial(check_memory, limit=lambda: MIB))
    with pytest.raises(StartupError, match="memory limit of 1 MiB"):
        create_engine(EngineSettings(kind="sim", kv_bytes=2 * MIB))


def test_deterministic_on_a_gpu_needs_triton(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "baton.engine.cuda.kernels", raising=False)
    config = read_config(checkpoints["llama"])
    settings = EngineSettings(model=checkpoints["llama"], device="cuda", deterministic="required")
    with pytest.raises(StartupError, match="Triton cannot be imported"):
        choose_kernels(settings, config, "bfloat16", threads=1)
    with pytest.raises(StartupError, match="dtype is float32"):
        choose_kernels(settings, config, "float32", threads=1)

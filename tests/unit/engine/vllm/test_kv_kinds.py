"""Each layer keeps the whole context; models whose KV cannot be moved are refused: by the table,
and by what vLLM makes of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from baton.engine.base import BlockGoneError, Engine
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.self_check import check_kv_moves
from baton.engine.testing.random_families import CONTEXT, WINDOW, write_family
from baton.engine.vllm.environment import prepare
from baton.settings import EngineSettings, StartupError
from tests.support.engine.contract import (
    admit,
    assert_baseline,
    block_of,
    drain,
    params,
    prompt,
    request,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.xdist_group("vllm-engines"),
    # What vLLM's libraries warn of is not for this project to mend.
    pytest.mark.filterwarnings("ignore"),
]

PATIENT = 1000.0
"""Seconds: the check's longer prompt is computed too, on however slow a machine."""


def settings_of(model: Path, **fields: object) -> EngineSettings:
    known = {"kind": "vllm", "model": model, "dtype": "float32", "threads": 1, "kv_bytes": 2**24}
    return EngineSettings.model_validate(known | fields)


def test_vllm_itself_is_asked_which_kv_it_keeps(tmp_path: Path) -> None:
    from baton.engine.vllm import factory

    settings = settings_of(write_family(tmp_path / "model", "deepseek-v3"))
    with pytest.raises(StartupError, match="not supported yet"):
        create_engine(settings)  # by config.json alone
    with pytest.raises(StartupError, match=r"keeps latent attention \(MLA\), which is not supp"):
        factory.create_vllm_engine(settings)


def test_layers_with_a_window_or_chunks_keep_the_whole_context() -> None:
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        SlidingWindowSpec,
    )

    from baton.engine.vllm.kv_kinds import whole_context

    shape = {"num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=64, **shape)
    window = SlidingWindowSpec(block_size=32, sliding_window=WINDOW, **shape)
    chunk = ChunkedLocalAttentionSpec(block_size=64, attention_chunk_size=WINDOW, **shape)
    made = whole_context({"full": full, "window": window, "chunk": chunk}, 64, Path("/model"))
    assert made == {
        "full": full,
        "window": FullAttentionSpec(block_size=64, sliding_window=WINDOW, **shape),
        "chunk": FullAttentionSpec(block_size=64, attention_chunk_size=WINDOW, **shape),
    }


def test_layers_with_other_windows_have_plans_of_their_own() -> None:
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    from baton.engine.vllm.kv_kinds import keep_windows_apart

    shape = {"block_size": 32, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
    full = FullAttentionSpec(**shape)
    window = FullAttentionSpec(sliding_window=WINDOW, **shape)
    specs = {"a": full, "b": window, "c": full}

    def planned(*names: str) -> list[object]:
        merged = FullAttentionSpec.merge([specs[name] for name in names])
        group = KVCacheGroupSpec(list(names), merged)
        config = KVCacheConfig(num_blocks=8, kv_cache_tensors=[], kv_cache_groups=[group])
        (found,) = keep_windows_apart(config, specs).kv_cache_groups
        assert found.layer_names == list(names)
        spec = found.kv_cache_spec
        return list(spec.kv_cache_specs.values()) if spec is not merged else [spec]

    assert planned("a", "b", "c") == [full, window, full]
    assert planned("a", "c") == [full]
    assert planned("b") == [window]


def test_other_kinds_are_refused_before_pages_are_allocated() -> None:
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

    from baton.engine.vllm.kv_kinds import whole_context

    full = FullAttentionSpec(block_size=64, num_kv_heads=2, head_size=32, dtype=torch.float32)
    state = MambaSpec(block_size=64, shapes=((4,),), dtypes=(torch.float32,))
    with pytest.raises(StartupError, match=r"/m keeps KV of another kind .*\(MambaSpec\).* yet"):
        whole_context({"full": full, "state": state}, 64, Path("/m"))


@pytest.fixture
def windowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine of a model with windows alone, which keeps no more than them."""
    from baton.engine.vllm import executors, factory

    monkeypatch.setattr(executors, "whole_context", lambda specs, *_: specs)
    monkeypatch.setattr(factory, "check_groups", lambda *_: None)
    settings = settings_of(write_family(tmp_path / "windowed", "mistral"))
    prepare(settings)
    engine = factory.create_vllm_engine(settings)
    yield engine
    engine.close_engine()


def test_a_block_behind_a_window_is_gone(windowed: Engine) -> None:
    block = windowed.info.layout.block_tokens
    count = 4 * WINDOW // block
    admit(windowed, request(1, prompt(4 * WINDOW + 8), sampling=params(max_tokens=block)))
    windowed.start(1, 0)
    drain(windowed)
    block_of(windowed, 1, count - 1)
    with pytest.raises(BlockGoneError):
        block_of(windowed, 1, 0)
    windowed.close(1)
    windowed.evict_blocks()
    # Its pages are gone before anything is written: vLLM counts from the context's end.
    admit(windowed, request(2, prompt(4 * WINDOW + 8)))
    with pytest.raises(BlockGoneError):
        windowed.write_blocks(2, [0], memoryview(bytes(windowed.info.block_bytes)))
    windowed.close(2)


@pytest.mark.parametrize("raises", [True, False])
def test_the_check_at_start_finds_a_window_that_nothing_refused(
    windowed: Engine, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    from baton.engine.vllm.core import VllmCore

    windowed.warm_up()
    said = "the KV of a prompt cannot be read or written"
    if not raises:  # as it was: vLLM's null page is read and written
        monkeypatch.setattr(VllmCore, "holds_page", lambda *_: True)
        said = "written back, output token"
    with pytest.raises(StartupError, match=said):
        check_kv_moves(windowed, PATIENT)
    assert_baseline(windowed)


@pytest.mark.parametrize(
    ("family", "fields", "context"),
    [("mistral-covered", {}, CONTEXT), ("mistral", {"context_tokens": WINDOW}, WINDOW)],
)
def test_a_window_that_covers_the_context_is_full_attention(
    tmp_path: Path, family: str, fields: dict[str, object], context: int
) -> None:
    engine = create_engine(settings_of(write_family(tmp_path / family, family), **fields))
    try:
        assert engine.info.context_tokens == context
        engine.warm_up()
        check_kv_moves(engine, PATIENT)
        asked = request(1, prompt(context // 2 + 8))
        first, again = (run_local(engine, [asked])[0] for _ in range(2))
        assert again.tokens == first.tokens
        assert again.ended is not None
        assert again.ended.cached_tokens > 0
    finally:
        engine.close_engine()


def test_each_architecture_of_the_table_is_one_that_vllm_knows() -> None:
    from vllm.model_executor.models.registry import ModelRegistry

    from baton.engine.support.architectures import ARCHITECTURES

    # By its way to run what only transformers has.
    transformers_alone = {"Olmo3ForCausalLM", "MinistralForCausalLM"}
    known = set(ModelRegistry.get_supported_archs()) | transformers_alone
    served = {name for name, row in ARCHITECTURES.items() if not row.needs}
    assert served <= known

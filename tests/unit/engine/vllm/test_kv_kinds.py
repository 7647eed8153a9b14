"""Groups of layers; models whose KV cannot be moved are refused: by the table, and by what vLLM
makes of them.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.self_check import check_kv_moves
from baton.engine.testing.random_families import CONTEXT, WINDOW, write_family
from baton.kv.layout import GroupKind, KvGroup
from baton.settings import EngineSettings, StartupError
from tests.support.engine.contract import (
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


def test_windows_and_chunks_are_groups_next_to_full_attention_of_equal_pages() -> None:
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        SlidingWindowSpec,
    )

    from baton.engine.vllm.groups.kinds import kv_groups, layer_specs, order_of

    shape = {"num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=64, **shape)
    window = SlidingWindowSpec(block_size=32, sliding_window=WINDOW, **shape)
    chunk = ChunkedLocalAttentionSpec(block_size=64, attention_chunk_size=WINDOW, **shape)
    equal = SlidingWindowSpec(block_size=64, sliding_window=WINDOW, **shape)
    made = layer_specs({"window": window, "full": full, "chunk": chunk}, 64, Path("/model"))
    assert made == {"window": equal, "full": full, "chunk": chunk}
    specs = list(made.values())
    assert order_of(specs) == (1, 0, 2)
    assert kv_groups(specs[1:], [8, 9]) == (
        KvGroup(GroupKind.FULL, 8),
        KvGroup(GroupKind.CHUNK, 9, WINDOW),
    )
    assert kv_groups([full], [8]) == ()

    whole = {
        "window": FullAttentionSpec(block_size=64, sliding_window=WINDOW, **shape),
        "chunk": FullAttentionSpec(block_size=64, attention_chunk_size=WINDOW, **shape),
    }
    alone = {"window": window, "chunk": chunk}
    assert layer_specs(alone, 64, Path("/model")) == whole
    wide = FullAttentionSpec(block_size=64, num_kv_heads=4, head_size=32, dtype=torch.float32)
    mixed = layer_specs(alone | {"wide": wide}, 64, Path("/model"))
    assert mixed == whole | {"wide": wide}


def test_layers_with_other_windows_have_plans_of_their_own() -> None:
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    from baton.engine.vllm.groups.kinds import keep_windows_apart

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
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
    from vllm.v1.kv_cache_interface import CrossAttentionSpec, FullAttentionSpec, MambaSpec

    from baton.engine.vllm.groups.kinds import layer_specs

    shape = {"num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=64, **shape)
    cross = CrossAttentionSpec(block_size=64, **shape)
    with pytest.raises(StartupError, match=r"/m keeps KV of a kind \(CrossAttentionSpec\).* yet"):
        layer_specs({"full": full, "cross": cross}, 64, Path("/m"))
    state = MambaSpec(block_size=64, shapes=((4,),), dtypes=(torch.float32,))
    with pytest.raises(StartupError, match=r"/m keeps states of a kind \(MAMBA2\), which is not"):
        layer_specs({"full": full, "state": state}, 64, Path("/m"))
    gated = replace(state, mamba_type=MambaAttentionBackendEnum.GDN_ATTN)
    assert layer_specs({"full": full, "state": gated}, 64, Path("/m")) == {
        "full": full,
        "state": gated,
    }


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

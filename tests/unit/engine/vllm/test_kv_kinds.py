"""Models whose KV cannot be moved are refused: by the table, and by what vLLM makes of them."""

import time
from pathlib import Path

import pytest

from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.sampling import SamplingParams
from baton.settings import EngineSettings, StartupError
from tests.support.clock import slowness
from tests.support.engine.families import CONTEXT, VOCAB, WINDOW, write_family

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.xdist_group("vllm-engines"),
    # What vLLM's libraries warn of is not for this project to mend.
    pytest.mark.filterwarnings("ignore"),
]

REFUSED = {
    "mistral": f"keeps KV of the last {WINDOW} tokens only (sliding window)",
    "gemma3": "kinds (FullAttentionSpec, SlidingWindowSpec)",
    "gpt-oss": "kinds (FullAttentionSpec, SlidingWindowSpec)",
    "deepseek-v3": "keeps latent attention (MLA)",
}
"""By family, what is said of what vLLM makes of it."""


def settings_of(model: Path, **fields: object) -> EngineSettings:
    known = {"kind": "vllm", "model": model, "dtype": "float32", "threads": 1, "kv_bytes": 2**24}
    return EngineSettings.model_validate(known | fields)


@pytest.mark.parametrize("family", REFUSED)
def test_vllm_itself_is_asked_which_kv_it_keeps(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(write_family(tmp_path / family, family))
    with pytest.raises(StartupError, match="not supported yet"):
        create_engine(settings)  # by config.json alone
    from baton.engine.vllm import factory

    made: list[float] = []
    make = factory._make_core

    def timed(*arguments: object) -> object:
        core = make(*arguments)  # type: ignore[arg-type]
        made.append(time.thread_time())
        return core

    monkeypatch.setattr(factory, "_make_core", timed)
    with pytest.raises(StartupError) as caught:
        factory.create_vllm_engine(settings)
    assert REFUSED[family] in str(caught.value)
    assert "not supported yet" in str(caught.value)
    if made:  # others are refused before the model is loaded
        assert time.thread_time() - made[0] < slowness()


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
        prompt = tuple((7 * i + i * i) % VOCAB for i in range(context // 2 + 8))
        greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        request = SequenceRequest(1, b"root", prompt, greedy)
        first, again = (run_local(engine, [request])[0] for _ in range(2))
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

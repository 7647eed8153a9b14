"""Models whose KV cannot be moved are refused: by the table, and by what vLLM makes of them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from baton.engine.base import BlockGoneError, Engine
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.self_check import check_kv_moves
from baton.engine.vllm.environment import prepare
from baton.settings import EngineSettings, StartupError
from tests.support.clock import slowness
from tests.support.engine.contract import (
    admit,
    assert_baseline,
    block_of,
    drain,
    params,
    prompt,
    request,
)
from tests.support.engine.families import CONTEXT, WINDOW, write_family

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.xdist_group("vllm-engines"),
    # What vLLM's libraries warn of is not for this project to mend.
    pytest.mark.filterwarnings("ignore"),
]

PATIENT = 1000.0
"""Seconds: the check's longer prompt is computed too, on however slow a machine."""
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

    told: list[float] = []
    check = factory.check_groups

    def noted(*arguments: object) -> None:
        try:
            check(*arguments)  # type: ignore[arg-type]
        finally:
            told.append(time.thread_time())

    monkeypatch.setattr(factory, "_make_core", timed)
    monkeypatch.setattr(factory, "check_groups", noted)
    with pytest.raises(StartupError) as caught:
        factory.create_vllm_engine(settings)
    assert REFUSED[family] in str(caught.value)
    assert "not supported yet" in str(caught.value)
    if made:  # others are refused before the model is loaded; closing it collects all garbage
        assert told[0] - made[0] < slowness()


@pytest.fixture
def windowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine of a model with windows alone, which nothing refused."""
    from baton.engine.vllm import config, factory

    monkeypatch.setattr(config, "check_config", lambda *_: None)
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

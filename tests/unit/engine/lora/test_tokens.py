"""An adapter's tokens are those of the model with the adapter merged into its weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from baton.engine.base import Engine
from baton.engine.local import run_local
from baton.engine.lora.adapter import read_adapter
from baton.engine.lora.config import AdapterError
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.engine.testing.random_families import write_family
from tests.support.engine.contract import prompt, request
from tests.support.engine.lora import LAYERS, add, make_engine, merge

PROMPTS = [prompt(n, n) for n in (20, 45, 33)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("lora") / "model", seed=5)


@pytest.fixture
def engine(model: Path) -> Iterator[Engine]:
    engine = make_engine(model, adapter_slots=2)
    yield engine
    engine.close_engine()


def outputs(engine: Engine, *adapters: str) -> list[list[int]]:
    """Run one sequence per adapter, all in one batch; return their tokens."""
    asked = [
        request(n, tokens, adapter=key, root=f"root {key}".encode())
        for n, (tokens, key) in enumerate(zip(PROMPTS, adapters, strict=True))
    ]
    return [one.tokens[0] for one in run_local(engine, asked)]


def merged_outputs(model: Path, adapter: Path, to: Path) -> list[list[int]]:
    """Return the tokens of a model that an adapter was merged into."""
    merged = make_engine(merge(model, adapter, to))
    try:
        return outputs(merged, "", "", "")
    finally:
        merged.close_engine()


def check_merged(engine: Engine, model: Path, tmp_path: Path, modules: tuple[str, ...]) -> None:
    """Check the tokens of two adapters, alone and mixed, against those of merged models."""
    expected = [outputs(engine, "", "", "")]
    for n, key in enumerate("ab"):
        options = {"rank": 4 + 4 * n, "alpha": 9.0, "use_rslora": n == 1}
        made = write_random_adapter(tmp_path / key, model, n, modules=modules, **options)
        add(engine, key, made)
        expected.append(merged_outputs(model, made, tmp_path / f"merged-{key}"))
        assert outputs(engine, key, key, key) == expected[-1]
    base, a, b = expected
    assert len({str(base), str(a), str(b)}) == 3
    assert outputs(engine, "a", "", "b") == [a[0], base[1], b[2]]
    assert outputs(engine, "b", "a", "a") == [b[0], a[1], a[2]]


def test_tokens_are_those_of_merged_weights(engine: Engine, model: Path, tmp_path: Path) -> None:
    check_merged(engine, model, tmp_path, LAYERS)


@pytest.mark.parametrize(
    ("family", "modules"),
    [
        ("phi3", ("qkv_proj", "gate_up_proj", "down_proj")),
        ("glm4", ("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj")),
    ],
)
def test_layers_that_are_joined_or_reordered(
    tmp_path: Path, family: str, modules: tuple[str, ...]
) -> None:
    model = write_family(tmp_path / "model", family)
    engine = make_engine(model)
    try:
        check_merged(engine, model, tmp_path, modules)
    finally:
        engine.close_engine()


def test_slots_are_bounded_and_what_is_in_use_stays(
    engine: Engine, model: Path, tmp_path: Path
) -> None:
    made = write_random_adapter(tmp_path / "a", model)
    for key in ("a", "b"):
        add(engine, key, made)
    with pytest.raises(ValueError, match="all 2 slots"):
        add(engine, "c", made)
    with pytest.raises(ValueError, match="added already"):
        add(engine, "a", made)
    with pytest.raises(ValueError, match=r"'c' does not exist: this engine has a, b|b, a"):
        engine.add(request(0, adapter="c"))
    engine.add(request(0, adapter="a"))
    with pytest.raises(ValueError, match="in use"):
        engine.remove_adapter("a")
    engine.close(0)
    engine.remove_adapter("a")
    with pytest.raises(KeyError):
        engine.remove_adapter("a")
    add(engine, "c", made)


def test_files_that_change_are_not_loaded(engine: Engine, model: Path, tmp_path: Path) -> None:
    made = write_random_adapter(tmp_path / "a", model)
    limits = engine.info.adapter_limits
    assert limits is not None
    known = read_adapter("a", made, limits)
    write_random_adapter(made, model, seed=1)
    with pytest.raises(AdapterError, match="not those that were registered"):
        engine.load_adapter(known)
    write_random_adapter(made, model, alpha=3.0)
    with pytest.raises(AdapterError, match="not those that were registered"):
        engine.load_adapter(known)
    write_random_adapter(made, model)
    engine.load_adapter(known)


def test_layers_that_the_engine_does_not_adapt_are_named(tmp_path: Path) -> None:
    model = write_random_checkpoint(tmp_path / "model", "qwen3_moe")
    engine = make_engine(model)
    try:
        made = write_random_adapter(tmp_path / "a", model, modules=("gate_proj",))
        with pytest.raises(AdapterError, match=r"experts.*not supported"):
            add(engine, "a", made)
    finally:
        engine.close_engine()


def test_in_bfloat16_an_adapter_alone_has_the_same_tokens_as_in_a_batch(
    native_library: Path,
    tmp_path: Path,
) -> None:
    model = write_random_checkpoint(tmp_path / "model", seed=5, dtype="bfloat16")
    options = {"native": "required", "dtype": "bfloat16", "deterministic": "required"}
    engine = make_engine(model, **options)
    try:
        for n, key in enumerate("ab"):
            add(engine, key, write_random_adapter(tmp_path / key, model, n, modules=LAYERS))
        alone = {}
        for key in ("", "a", "b"):
            for n, tokens in enumerate(PROMPTS):
                (found,) = run_local(engine, [request(n, tokens, adapter=key, root=b"alone")])
                alone[key, n] = found.tokens[0]
                engine.evict_blocks()
        for keys in (("a", "", "b"), ("b", "a", "a"), ("", "b", "")):
            expected = [alone[key, n] for n, key in enumerate(keys)]
            assert outputs(engine, *keys) == expected
            engine.evict_blocks()
    finally:
        engine.close_engine()

"""An adapter's tokens are those of the model with the adapter merged into its weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from baton.engine.base import Engine
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.engine.lora.adapter import read_adapter
from baton.engine.lora.config import AdapterError
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.engine.testing.random_families import write_family
from tests.support.engine.contract import params, prompt, request
from tests.support.engine.lora import LAYERS, add, make_engine, merge

PROMPTS = [prompt(n, n) for n in (20, 45, 33)]
OTHER_ENGINE = {
    "vllm": [
        pytest.mark.vllm,
        pytest.mark.xdist_group("vllm-engines"),
        # What vLLM's libraries warn of is not for this project to mend.
        pytest.mark.filterwarnings("ignore"),
    ]
}
KINDS = [pytest.param(kind, marks=OTHER_ENGINE.get(kind, [])) for kind in ("torch", "vllm")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("lora") / "model", seed=5, head_size=32)


@pytest.fixture(params=KINDS)
def engine(model: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = make_engine(model, request.param, adapter_slots=2)
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("family", "modules"),
    [
        ("phi3", ("qkv_proj", "gate_up_proj", "down_proj")),
        ("glm4", ("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj")),
    ],
)
def test_layers_that_are_joined_or_reordered(
    tmp_path: Path, family: str, modules: tuple[str, ...], kind: str
) -> None:
    model = write_family(tmp_path / "model", family)
    engine = make_engine(model, kind, adapter_slots=2)
    limits = engine.info.adapter_limits
    assert limits is not None
    taken = {name.rpartition(".")[2] for name in limits.modules}
    assert set(modules) - taken == (
        {"gate_up_proj"} if (family, kind) == ("glm4", "vllm") else set()
    )
    try:
        check_merged(engine, model, tmp_path, tuple(taken.intersection(modules)))
    finally:
        engine.close_engine()


class Running:
    """Sequences of an engine, which steps once at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tokens: dict[int, list[int]] = {}
        self.open: set[int] = set()

    def add(self, number: int, adapter: str = "") -> None:
        """Begin a sequence of 24 tokens after the prompt of its number."""
        asked = request(
            number,
            PROMPTS[number % len(PROMPTS)],
            adapter=adapter,
            root=f"root {adapter}".encode(),
            sampling=params(max_tokens=24),
        )
        self._engine.add(asked)
        self.tokens[number] = []
        self.open.add(number)

    def run(self, number: int, count: int = 24) -> list[int]:
        """Step until a sequence has so many tokens; return these."""
        while len(self.tokens[number]) < count or (count == 24 and number in self.open):
            for event in self._engine.step():
                match event:
                    case Admitted():
                        self._engine.start(event.id, event.cached_tokens)
                    case SampledTokens():
                        self.tokens[event.id].extend(event.token_ids)
                    case SequenceEnded():
                        self._engine.close(event.id)
                        self.open.remove(event.id)
        return self.tokens[number]


def test_adapters_come_and_go_while_others_run(engine: Engine, model: Path, tmp_path: Path) -> None:
    made = {
        key: write_random_adapter(tmp_path / key, model, n, modules=LAYERS)
        for n, key in enumerate("abc")
    }
    expected = {}
    for key in ("", *made):
        at = model if not key else merge(model, made[key], tmp_path / f"merged-{key}")
        alone = make_engine(at)
        for number, tokens in enumerate(PROMPTS):
            asked = request(number, tokens, root=b"alone", sampling=params(max_tokens=24))
            (found,) = run_local(alone, [asked])
            expected[key, number] = found.tokens[0]
        alone.close_engine()
    running = Running(engine)
    running.add(0)
    running.run(0, 4)
    add(engine, "v@1", made["a"])
    running.add(1, "v@1")
    running.run(1, 4)
    add(engine, "v@2", made["b"])  # replaces it; both versions run
    running.add(2, "v@2")
    running.run(2, 4)
    with pytest.raises(ValueError, match="in use"):
        engine.remove_adapter("v@1")
    assert running.run(1) == expected["a", 1]
    engine.remove_adapter("v@1")
    add(engine, "c", made["c"])  # in the slot that was released
    running.add(4, "c")
    running.add(3, "")
    assert running.run(2) == expected["b", 2]
    engine.remove_adapter("v@2")
    assert running.run(0) == expected["", 0]
    assert running.run(4) == expected["c", 1]
    assert running.run(3) == expected["", 0]


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


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_the_engine_does_not_adapt_are_named(tmp_path: Path, kind: str) -> None:
    model = write_random_checkpoint(tmp_path / "model", "qwen3_moe", head_size=32)
    engine = make_engine(model, kind, adapter_slots=2)
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

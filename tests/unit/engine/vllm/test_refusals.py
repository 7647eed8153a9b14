"""What vLLM cannot serve is refused in a sentence that says what to change."""

from pathlib import Path

import pytest

from baton.engine.factory import create_engine
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.settings import EngineSettings, StartupError

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-engines")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("model"), head_size=32)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": None}, "BATON_ENGINE_MODEL"),
        ({"model": Path("/nowhere")}, r"/nowhere/config\.json is missing"),
        ({"dtype": "float64"}, "set float32 or bfloat16"),
        ({"device": "cuda"}, "this vLLM runs on cpu"),
        ({"context_tokens": 5000}, r"5000.* See BATON_ENGINE_CONTEXT_TOKENS\."),
        ({"tensor_parallel": 3}, r"heads \(4\).* See BATON_ENGINE_TENSOR_PARALLEL\."),
        ({"vllm_args": {"nonsense": 1}}, r"'nonsense'\. See BATON_ENGINE_VLLM_ARGS\."),
        ({"vllm_args": {"block_size": 64}}, "sets block_size, which Baton's own settings control"),
    ],
)
def test_what_does_not_go_with_vllm_is_refused(
    checkpoint: Path, fields: dict[str, object], said: str
) -> None:
    known = {"kind": "vllm", "model": checkpoint, "dtype": "float32"}
    with pytest.raises(StartupError, match=said):
        create_engine(EngineSettings.model_validate(known | fields))


def test_a_head_size_that_the_cpu_backend_lacks_is_refused(tmp_path: Path) -> None:
    model = write_random_checkpoint(tmp_path, head_size=24)
    with pytest.raises(StartupError, match=r"heads of 24 values.* 32, 64, 80, "):
        create_engine(EngineSettings(kind="vllm", model=model))

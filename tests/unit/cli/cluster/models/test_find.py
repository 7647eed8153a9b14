"""What --model and the settings file say about models, and what is refused at the start."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from baton.cli.cluster.local.models.find import find_models
from baton.cli.cluster.local.models.local_model import LocalModel, parse
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.settings import StartupError
from baton.settings.file import models_in

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("written") / "tiny")


@pytest.fixture
def checkpoint(tmp_path: Path, written: Path) -> Checkpoint:
    return lambda name: Path(shutil.copytree(written, tmp_path / name))


def found(*models: str, **options: object) -> tuple[LocalModel, ...]:
    return find_models(ClusterOptions(model=list(models), **options))  # type: ignore[arg-type]


def test_each_model_has_its_own_options_and_the_commands_as_defaults(
    checkpoint: Checkpoint,
) -> None:
    first, second = checkpoint("first"), checkpoint("second")
    options = "name=org/two,prefill=0,decode=0,combined=3,dtype=float32,engine=sim"
    models = found(str(first), f"{second}:{options}", prefill=1, decode=4, dtype="bfloat16")
    assert models == (
        LocalModel("first", first.resolve(), 1, 4, 0, "bfloat16", "torch"),
        LocalModel("org/two", second.resolve(), 0, 0, 3, "float32", "sim"),
    )
    assert models[1].pools == "3 combined"


def test_a_path_may_have_colons(checkpoint: Checkpoint, tmp_path: Path) -> None:
    odd = checkpoint("qwen:7b")
    trap = checkpoint("a:decode=9")
    assert parse(str(odd)).path == odd
    assert parse(str(trap)).path == trap
    given = parse(f"{odd}:decode=1,name=qwen")
    assert (given.path, given.decode, given.name) == (odd, 1, "qwen")
    assert parse(str(tmp_path / "absent:7b")).path == tmp_path / "absent:7b"


def test_without_a_model_the_bundled_one_is_served() -> None:
    (model,) = find_models(ClusterOptions())
    assert (model.name, model.path.name) == ("baton-tiny", "baton-tiny")
    (renamed,) = find_models(ClusterOptions(model_name="mine"))
    assert renamed.name == "mine"


def test_the_file_says_the_same(checkpoint: Checkpoint, tmp_path: Path) -> None:
    first, second = checkpoint("first"), checkpoint("second")
    config = tmp_path / "baton.toml"
    config.write_text(
        f'[models.one]\npath = "{first}"\n'
        f'[models."org/two"]\npath = "{second}"\ndecode = 1\ndtype = "float32"\n'
    )
    models = find_models(ClusterOptions(config=config))
    assert [(one.name, one.decode, one.dtype) for one in models] == [
        ("one", 2, "auto"),
        ("org/two", 1, "float32"),
    ]
    (given,) = find_models(ClusterOptions(config=config, model=[str(first)]))
    assert given.name == "first", "an option wins over the file"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models = 3", "models is 3: it must be a table"),
        ("[models]\na = 3", "models.a is 3: it must be a table"),
        ("[models.a]\ndecode = 1", "models.a has no path: set it to a checkpoint"),
        ("[models.a]\npath = 'a'\nname = 'b'", "models.a: remove name"),
        (
            "[models.a]\npath = 'a'\ndecod = 1",
            "'decod' is not an option of a model; did you",
        ),
        (
            "[models.a]\npath = 'a'\ndecode = 65",
            "decode is '65': should be less than or equal to 64",
        ),
        ('[models."a\\u0007"]\npath = "a"', r"name is 'a\x07': string should match pattern"),
    ],
)
def test_a_wrong_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    config = tmp_path / "baton.toml"
    config.write_text(text)
    with pytest.raises(StartupError) as caught:
        models_in(config)
    assert said in str(caught.value)
    assert str(config) in str(caught.value)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (("A:foo=1",), "'foo' is not an option of a model: use name, prefill, decode, combined"),
        (("A:decode=1,decode=1",), "decode is given twice"),
        (("A:decode=-1",), "decode is '-1': should be greater than or equal to 0"),
        (("A:decode=65",), "decode is '65': should be less than or equal to 64"),
        (("A:decode=x",), "decode is 'x': should be a valid integer"),
        (("A:decode",), "'decode' is not OPTION=VALUE"),
        (("A:path=/b",), "the path is what comes before the colon"),
        (("A:dtype=int8",), "dtype is 'int8': should be 'auto', 'float32'"),
        (("A:engine=gpu",), "engine is 'gpu': should be 'torch', 'sim' or 'vllm'"),
        (("A:name=a\x07",), r"name is 'a\x07': string should match pattern"),
        (("A:decode=0",), "Model 'A' has no decode worker: set at least --decode 1"),
        (("A", "B:name=A"), "2 models are named 'A'"),
        (("A", "A:name=C"), "Models 'A' and 'C' are the same one"),
        (("absent",), "absent' does not exist"),
        (("A",) * 33, "33 models are too many for one machine: at most 32"),
    ],
)
def test_what_cannot_be_served_is_refused(
    models: tuple[str, ...], said: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    checkpoint("A")
    checkpoint("B")
    with pytest.raises(CommandError) as caught:
        found(*(str(tmp_path / model) for model in models))
    assert said in str(caught.value)
    assert caught.value.code == 2


def test_one_name_option_cannot_name_two_models(checkpoint: Checkpoint) -> None:
    first, second = checkpoint("A"), checkpoint("B")
    with pytest.raises(CommandError, match=r"--model-name x names one model, and there are 2"):
        found(str(first), str(second), model_name="x")


def test_a_checkpoint_is_served_twice_if_what_is_computed_differs(checkpoint: Checkpoint) -> None:
    path = checkpoint("A")
    models = found(f"{path}:dtype=float32", f"{path}:name=exact,dtype=float64")
    assert [model.name for model in models] == ["A", "exact"]
    assert len(found(f"{path}:engine=sim", f"{path}:name=b,engine=sim")) == 2

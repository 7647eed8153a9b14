"""What `baton up` decides of its engines' operators, once for all of them."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from baton.cli.cluster.local.compiling import background, operators
from baton.cli.cluster.local.compiling.background import compile_router
from baton.cli.cluster.local.compiling.operators import NATIVE_ENV, REASON_ENV, EngineOperators
from baton.cli.cluster.local.compiling.parts import OPERATORS, ROUTER, of_router
from baton.cli.cluster.local.output.report import Reporter
from baton.compiled.files import DIRECTORY_ENV
from baton.engine.native import build as native_build
from baton.engine.native import variants
from baton.engine.native.variants import VARIANTS, Variant
from baton.settings import EngineSettings
from tests.support.doubles.compiler import make_compiler

CPU = EngineSettings()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with AVX-512 and some compiler; return the parts that builders were started for."""
    started: list[str] = []
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "native"))
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setenv("CC", "true")
    monkeypatch.setattr(background, "_spawn", started.append)
    monkeypatch.setattr(native_build, "runnable", lambda: VARIANTS[1:3])
    return started


class Said:
    """What is decided, and what was printed of it."""

    def __init__(self) -> None:
        self._printed = StringIO()
        self.reporter = Reporter(Console(file=self._printed, width=1000))
        self.choice = EngineOperators(self.reporter)

    @property
    def text(self) -> str:
        return self._printed.getvalue()


def test_where_they_are_built_engines_take_them_and_nothing_is_said(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", make_compiler(tmp_path))
    native_build.library(VARIANTS[1]).build()
    said = Said()
    assert said.choice.settings_for(CPU, ()) == {}
    assert (said.text, machine) == ("", [])


def test_one_start_keeps_to_plain_torch_though_they_are_built_meanwhile(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Said()
    first = said.choice.settings_for(CPU, ())
    assert first[NATIVE_ENV] == "off"
    assert "compilation was in progress" in first[REASON_ENV]
    assert machine == [OPERATORS]
    monkeypatch.setattr(operators, "built", lambda: pytest.fail("decided twice"))
    assert said.choice.settings_for(CPU, ()) == first
    assert len(said.text.splitlines()) == 1
    assert len(machine) == 1


def test_without_a_compiler_it_says_what_to_do(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = Said()
    assert "no C++ compiler" in said.choice.settings_for(CPU, ())[REASON_ENV]
    assert "Install one, for example g++" in said.text
    assert machine == []


def test_what_failed_before_is_tried_again_and_its_log_named(machine: list[str]) -> None:
    log = native_build.library(VARIANTS[1]).log
    log.parent.mkdir()
    log.write_text("out of memory")
    said = Said()
    assert str(log) in said.choice.settings_for(CPU, ())[REASON_ENV]
    assert str(log) in said.text
    assert len(machine) == 1


def test_a_builder_that_runs_is_enough(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_build.Library, "is_being_built", lambda _: True)
    assert "compilation was in progress" in Said().choice.settings_for(CPU, ())[REASON_ENV]
    assert machine == []


def test_a_directory_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(background, "_spawn", refuse)
    said = Said()
    assert "Permission denied" in said.choice.settings_for(CPU, ())[REASON_ENV]
    assert DIRECTORY_ENV in said.text


def test_a_cpu_without_a_variant_runs_plain_torch(
    machine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: tuple[Variant, ...] = ()
    for module in (native_build, variants):
        monkeypatch.setattr(module, "runnable", lambda: nothing)
    assert "this CPU is not supported" in Said().choice.settings_for(CPU, ())[REASON_ENV]
    assert machine == []


@pytest.mark.parametrize(
    ("engine", "given"),
    [
        (EngineSettings(kind="sim"), ()),
        (EngineSettings(kind="vllm", native="off"), ()),
        (EngineSettings(device="cuda"), ()),
        (EngineSettings(native="off"), (NATIVE_ENV,)),
        (EngineSettings(), (NATIVE_ENV,)),
    ],
)
def test_what_was_given_or_has_no_operators_is_let_be(
    machine: list[str], engine: EngineSettings, given: tuple[str, ...]
) -> None:
    said = Said()
    assert said.choice.settings_for(engine, given) == {}
    assert (said.text, machine) == ("", [])


def test_vllms_masks_are_compiled_for_the_next_start_and_its_settings_are_let_be(
    machine: list[str],
) -> None:
    said = Said()
    for _ in range(2):
        assert said.choice.settings_for(EngineSettings(kind="vllm"), ()) == {}
    assert machine == [OPERATORS]
    assert said.text.count("compile in the background") == 1


def test_what_a_router_lacks_is_compiled_for_the_next_start(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", make_compiler(tmp_path))
    table, scores = of_router()
    table.build()
    said = Said()
    compile_router(said.reporter)
    assert machine == [ROUTER]
    assert said.text.startswith("The router uses plain Python, which is slower: the missing parts ")
    scores.build()
    compile_router(Reporter(Console(stderr=True)))
    assert machine == [ROUTER]


def test_without_a_c_compiler_a_router_runs_without_and_says_what_to_do(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = Said()
    compile_router(said.reporter)
    assert "no C compiler" in said.text
    assert "Install one, for example gcc" in said.text
    assert machine == []

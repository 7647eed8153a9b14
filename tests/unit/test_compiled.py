"""Libraries get to their place whole, by one builder at a time, and only those are loaded."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from baton import __version__
from baton.compiled import files
from baton.compiled.choice import CompiledChoice, choose
from baton.compiled.files import DIRECTORY_ENV
from baton.compiled.library import CompileError, Language, Library, c_library
from baton.compiled.script import build_main

COMPILE = """\
echo x >> "$0.runs"
for made; do :; done
while [ -n "$UNTIL" ] && [ ! -e "$UNTIL" ]; do sleep 0.01; done
echo library > "$made"
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "native"))
    return tmp_path / "native"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that notes each of its runs beside it and writes some library."""
    script = tmp_path / "compile.sh"
    script.write_text(COMPILE)
    monkeypatch.setenv("CXX", f"sh {script}")
    return script


@pytest.fixture
def library(tmp_path: Path, directory: Path) -> Library:
    source = tmp_path / "ops.cpp"
    source.write_text("int one() { return 1; }\n")
    cpp = Language("C++", "CXX", ("no-such-compiler",), package="g++")
    return Library("ops", cpp, (source,), ("-O3",), ("torch 1",), command="make ops")


def runs(compiler: Path) -> int:
    return len(Path(f"{compiler}.runs").read_text().split())


def test_a_library_is_built_once(library: Library, compiler: Path, directory: Path) -> None:
    assert library.find() is None
    path = library.build()
    assert path == library.path == library.find() == library.build()
    assert path.parent == directory
    assert runs(compiler) == 1
    assert {found.suffix for found in directory.iterdir()} == {".so", ".lock"}


def test_whatever_it_is_made_of_gives_another_file(library: Library) -> None:
    others = [
        replace(library, flags=("-O2",)),
        replace(library, built_with=("torch 2",)),
        replace(library, name="other"),
    ]
    names = {library.file_name, *(other.file_name for other in others)}
    library.sources[0].write_text("int one() { return 2; }\n")
    assert len(names | {library.file_name}) == 5
    assert replace(library, paths=("-I/elsewhere",)).file_name == library.file_name


@pytest.mark.parametrize("spoil", ["cut", "changed", "foreign"])
def test_what_was_not_written_whole_for_this_name_is_built_again(
    library: Library, compiler: Path, spoil: str
) -> None:
    path = library.build()
    content = path.read_bytes()
    if spoil == "foreign":
        other = replace(library, built_with=("torch 2",)).build()
        other.rename(path)
    else:
        path.write_bytes(content[:-1] if spoil == "cut" else b"L" + content[1:])
    before = runs(compiler)
    assert library.find() is None
    assert library.build() == path
    assert path.read_bytes() == content
    assert runs(compiler) == before + 1


def test_a_wheels_own_is_taken(
    library: Library, compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt = library.build()
    monkeypatch.setattr(files, "PREBUILT", prebuilt.parent)
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "nothing"))
    assert library.find() == library.build() == prebuilt
    assert not (tmp_path / "nothing").exists()


def test_without_a_compiler_a_sentence_names_those_looked_for(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompileError, match=r"no C\+\+ compiler found: looked for no-such-compiler"):
        library.build()
    assert not library.log.exists()
    assert library.why_absent().endswith("install one, for example g++, and start again")


@pytest.mark.parametrize("command", ["sh -c 'echo it is full; exit 1'", "/no/such/c++"])
def test_what_a_failing_compiler_said_stays_until_one_succeeds(
    library: Library, directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setenv("CXX", command)
    said = "it is full" if "full" in command else "No such file"
    with pytest.raises(CompileError, match=said):
        library.build()
    assert said in library.log.read_text()
    assert library.why_absent() == f"compilation failed: see {library.log}"
    assert library.find() is None
    assert not list(directory.glob("*.part"))
    script = tmp_path / "compile.sh"
    script.write_text(COMPILE)
    monkeypatch.setenv("CXX", f"sh {script}")
    assert library.build().exists()
    assert not library.log.exists()


_BUILD = """
import sys
from pathlib import Path
from baton.compiled.library import CPP, Library
Library("ops", CPP, (Path(sys.argv[1]),), ("-O3",), ("torch 1",)).build()
"""


def builder(library: Library, until: Path) -> subprocess.Popen[bytes]:
    """Start to build the same library in another process, in a process group of its own.

    Its compiler runs until a file is there.
    """
    command = [sys.executable, "-c", _BUILD, str(library.sources[0])]
    return subprocess.Popen(command, env={**os.environ, "UNTIL": str(until)}, process_group=0)


def until_compiling(compiler: Path, process: subprocess.Popen[bytes]) -> None:
    noted = Path(f"{compiler}.runs")
    while not noted.exists() or not noted.read_text():  # the shell makes the file before it writes
        assert process.poll() is None


def test_builders_wait_for_the_one_that_builds(
    library: Library, compiler: Path, tmp_path: Path
) -> None:
    first = builder(library, until=tmp_path / "go")
    until_compiling(compiler, first)
    assert library.is_being_built()
    assert library.why_absent() == "compilation is in progress; available at the next start"
    assert library.find() is None
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    assert library.build() == library.path
    assert first.wait() == 0
    assert runs(compiler) == 1
    assert not library.is_being_built()


def test_a_killed_builder_leaves_the_place_to_the_next(
    library: Library, compiler: Path, tmp_path: Path
) -> None:
    killed = builder(library, until=tmp_path / "never")
    until_compiling(compiler, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    library.path.with_suffix(".part").write_text("half a lib")
    assert not library.is_being_built()
    assert library.find() is None
    assert library.build() == library.find()
    assert runs(compiler) == 2


def test_each_checkout_and_each_version_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DIRECTORY_ENV, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(files, "root", lambda: tmp_path / "clone")
    assert files.directory() == tmp_path / "state/baton" / __version__
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone/pyproject.toml").touch()
    assert files.directory() == tmp_path / "clone/build/native"


def test_a_script_prints_paths_or_exits_with_what_it_could_not_build(
    tmp_path: Path,
    directory: Path,
    compiler: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    library = c_library("one", tmp_path / "build.py", "one.c", "-ffast-math")
    monkeypatch.setenv("CC", f"sh {compiler}")
    build_main("the one", lambda: [library.build()])
    assert capsys.readouterr().out == f"{library.path}\n"
    library.path.unlink()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SystemExit, match="cannot build the one: false failed for baton_one_"):
        build_main("the one", lambda: [library.build()])
    assert "-ffast-math" in library.log.read_text()
    assert list(directory.glob("*.so")) == []


def test_what_is_compiled_is_taken_where_it_loads(library: Library, compiler: Path) -> None:
    def fail(_: Path) -> str:
        raise OSError("no such symbol")

    assert choose(library, str, lambda: "plain") == CompiledChoice(
        "plain", "not compiled: run `make ops`"
    )
    path = library.build()
    assert choose(library, str, lambda: "plain") == CompiledChoice(str(path))
    reason = f"{path} cannot be loaded: no such symbol"
    assert choose(library, fail, lambda: "plain") == CompiledChoice("plain", reason)

"""What a library is made of, and how it is built: its file's name has the digest of all that."""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from baton.compiled import files
from baton.host.file_locks import is_locked

_SHOWN = 2000  # characters of what a compiler says
_C_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
_C_SECONDS = 120


class CompileError(RuntimeError):
    """A library could not be compiled: no compiler, or it failed."""


@dataclass(frozen=True, slots=True)
class Language:
    """What compiles."""

    name: str
    variable: str
    """The environment's, with a compiler to use."""
    compilers: tuple[str, ...]
    """To look for otherwise, the best first."""
    package: str
    """What to install where there is none."""


C = Language("C", "CC", ("cc", "gcc", "clang"), package="gcc")
CPP = Language("C++", "CXX", ("c++", "g++", "clang++"), package="g++")


@dataclass(frozen=True, slots=True)
class Library:
    """What a library is made of."""

    name: str
    """Its file's begins so."""
    language: Language
    sources: tuple[Path, ...]
    """Part of the digest; the first is what the compiler gets."""
    flags: tuple[str, ...]
    """The compiler's; part of the digest."""
    built_with: tuple[str, ...] = ()
    """What else the library goes with, such as a version; part of the digest."""
    paths: tuple[str, ...] = ()
    """The compiler's flags that say where things lie on this machine."""
    seconds: float = 900
    """After which a compiler is killed."""
    command: str = ""
    """Builds it, for people."""

    @property
    def file_name(self) -> str:
        """Its file's."""
        digest = hashlib.sha256()
        for source in self.sources:
            digest.update(hashlib.sha256(source.read_bytes()).digest())
        for part in (*self.flags, *self.built_with):
            digest.update(b"\0" + part.encode())
        return f"{self.name}_{digest.hexdigest()[:16]}.so"

    @property
    def path(self) -> Path:
        """Where it is or would be built."""
        return files.directory() / self.file_name

    @property
    def log(self) -> Path:
        """What the compiler said when it failed last; absent since it succeeded."""
        return self.path.with_suffix(".log")

    def find(self) -> Path | None:
        """Return the path of the library, or None where it was not built whole."""
        return files.find(self.file_name)

    def find_compiler(self) -> list[str]:
        """Return the compiler's command.

        Raises:
            CompileError: there is none.
        """
        given = shlex.split(os.environ.get(self.language.variable, ""))
        found = given or [name for name in self.language.compilers if shutil.which(name)][:1]
        if not found:
            looked_for = ", ".join(self.language.compilers)
            raise CompileError(f"no {self.language.name} compiler found: looked for {looked_for}")
        return found

    def is_being_built(self) -> bool:
        """Return whether a process builds it now."""
        return is_locked(self.path.with_suffix(".lock"))

    def why_absent(self) -> str:
        """Return why it was not built, and what to do, in words."""
        if self.is_being_built():
            return "compilation is in progress; available at the next start"
        try:
            self.find_compiler()
        except CompileError as error:
            return f"{error}; install one, for example {self.language.package}, and start again"
        if self.log.exists():
            return f"compilation failed: see {self.log}"
        return f"not compiled: run `{self.command}`"

    def build(self) -> Path:
        """Build the library unless it is there, and return its path.

        One process builds at a time, and others wait for it: the lock goes with its process.

        Raises:
            CompileError: there is no compiler, or it failed.
            OSError: the directory cannot be written.
        """
        if (found := self.find()) is not None:  # first: an image's directory is only read
            return found
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            if not files.is_whole(path):
                made = path.with_suffix(".part")  # a killed builder's is overwritten
                try:
                    self._compile(made)
                    files.seal(made, path.name)
                    made.rename(path)  # readers see it whole or not at all
                finally:
                    made.unlink(missing_ok=True)
        return path

    def _compile(self, made: Path) -> None:
        compiler = self.find_compiler()
        command = [*compiler, *self.flags, str(self.sources[0]), *self.paths, "-o", str(made)]
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=self.seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said, failed = str(error), True
        else:
            said, failed = ended.stdout, ended.returncode != 0
        if failed:
            self.log.write_text(f"{shlex.join(command)}\n{said}\n")
            raise CompileError(f"{compiler[0]} failed for {self.name}: {said[-_SHOWN:]}")
        self.log.unlink(missing_ok=True)


def c_library(name: str, script: Path, source: str, *flags: str) -> Library:
    """Return what a library of one file of C is made of, for machines like this one.

    Args:
        name: of the library.
        script: that builds it.
        source: its file, beside the script.
        flags: of the compiler, beside those that every such library gets.
    """
    return Library(
        name=f"baton_{name}_{platform.machine()}",
        language=C,
        sources=(script.with_name(source),),
        flags=(*_C_FLAGS, *flags),
        seconds=_C_SECONDS,
        command=f"python {script}",
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

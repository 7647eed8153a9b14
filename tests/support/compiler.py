"""A compiler that is none: for tests of what surrounds compiling."""

from pathlib import Path


def make_compiler(directory: Path) -> str:
    """Return the command of a compiler that takes any source and makes a file that is no library.

    Args:
        directory: where its script is written.
    """
    script = directory / "compile.sh"
    script.write_text('for made; do :; done; echo library > "$made"')
    return f"sh {script}"

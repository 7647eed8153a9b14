"""A fake compiler, for tests of the code around compiling."""

from pathlib import Path


def make_compiler(directory: Path) -> str:
    """Return the command of a compiler that writes a file that is no library for any source.

    Args:
        directory: where its script is written.
    """
    script = directory / "compile.sh"
    script.write_text('for made; do :; done; echo library > "$made"')
    return f"sh {script}"

"""Keep ARCHITECTURE.md's list of folders equal to what the folders say of themselves.

python scripts/architecture.py           writes the list
python scripts/architecture.py --check   exits 1 if it is out of date
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- folders: written by scripts/architecture.py -->\n"
END = "<!-- end of folders -->\n"
LISTED = ("baton", "services")
GENERATED = ("baton/v1", "baton/internal")


def packages() -> Iterator[Path]:
    """Yield every package's folder but the generated ones, parents first."""
    for name in LISTED:
        for init in sorted((ROOT / name).rglob("__init__.py"), key=lambda path: path.parts[:-1]):
            folder = init.parent.relative_to(ROOT)
            if not folder.as_posix().startswith(GENERATED):
                yield folder


def docstring(folder: Path) -> str:
    """Return the first paragraph of a package's docstring, on one line."""
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))
    if not text:
        sys.exit(f"{folder}/__init__.py has no docstring: say what the folder is for")
    return " ".join(text.split("\n\n")[0].split())


def listing() -> str:
    """Return the list, as Markdown."""
    return "".join(f"- `{folder}/` {docstring(folder)}\n" for folder in packages())


def main() -> None:
    """Write the list, or check it."""
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{listing()}\n{END}{after}"
    if "--check" not in sys.argv:
        DOCUMENT.write_text(wanted)
    elif wanted != text:
        sys.exit("ARCHITECTURE.md's list of folders is out of date: make fix")


if __name__ == "__main__":
    main()

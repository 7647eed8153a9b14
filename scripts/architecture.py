"""Keep documents consistent with the tree: docs/folders.md, and the paths in all documents.

python scripts/architecture.py           writes the list of folders
python scripts/architecture.py --check   exits 1 if the list is out of date, or a document
                                         names a path that does not exist
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "folders.md"
BEGIN = "<!-- folders: written by scripts/architecture.py -->\n"
END = "<!-- end of folders -->\n"
LISTED = ("baton", "services", "simulator", "bench")
GENERATED = ("baton/v1", "baton/internal")
CHECKED = ("*.md", "docs/**/*.md", "examples/*.md", "models/**/*.md")
_QUOTED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
_LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")
_MODULE = re.compile(r"python -m ((?:baton|bench|services|simulator)\.[\w.]+)")
_SUFFIXES = (".py", ".proto", ".md", ".sh", ".cpp", ".toml", ".yaml")
_MADE = (".venv", "build")
"""Folders of generated files, which are not in the repository."""


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


def stale_names(document: Path) -> Iterator[str]:
    """Yield the paths in a document that do not exist.

    A quoted path starts at a folder of the repository's root; the name of a file alone must be that
    of some file.
    """
    text = document.read_text()
    top = {path.name for path in ROOT.iterdir()}
    for name in _QUOTED.findall(text):
        first, slash, _ = name.partition("/")
        if first in _MADE:
            continue
        known = first in top if slash else name.endswith(_SUFFIXES)
        if known and not (ROOT / name).exists() and (slash or not found_anywhere(name)):
            yield name
        if slash and not known and name.endswith(_SUFFIXES):
            yield f"{name}: begin at the repository's root"
    for name in _LINK.findall(text):
        if not (document.parent / name).exists():
            yield name
    for name in _MODULE.findall(text):
        path = ROOT / name.replace(".", "/")
        if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()):
            yield name


def found_anywhere(name: str) -> bool:
    """Return whether any source file has this name."""
    folders = (*LISTED, "models", "scripts", "tests", "protos", "docs")
    return any(True for folder in folders for _ in (ROOT / folder).rglob(name))


def main() -> None:
    """Write the list, or check everything."""
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{listing()}\n{END}{after}"
    if "--check" not in sys.argv:
        DOCUMENT.write_text(wanted)
        return
    if wanted != text:
        sys.exit("docs/folders.md is out of date: make fix")
    documents = sorted({path for pattern in CHECKED for path in ROOT.glob(pattern)})
    stale = [
        f"{document.relative_to(ROOT)} names what is not there: {name}"
        for document in documents
        for name in stale_names(document)
    ]
    if stale:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()

"""Keep ARCHITECTURE.md's list of files equal to the first lines of their docstrings.

python scripts/architecture.py           writes the list
python scripts/architecture.py --check   exits 1 if it is out of date
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- files: written by scripts/architecture.py -->\n"
END = "<!-- end of files -->\n"
LISTED = ("protos/baton/v1", "baton", "services", "bench", "scripts")


def first_line(path: Path) -> str:
    """What a file says of itself."""
    if path.suffix == ".proto":
        return path.read_text().splitlines()[0].removeprefix("//").strip()
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    if not docstring:
        sys.exit(f"{path.relative_to(ROOT)} has no docstring")
    return docstring.splitlines()[0]


def folders() -> Iterator[Path]:
    generated = ROOT / "baton" / "v1"
    for name in LISTED:
        top = ROOT / name
        for folder in (top, *sorted(path for path in top.rglob("*") if path.is_dir())):
            if folder != generated and "__pycache__" not in folder.parts:
                yield folder


def listing() -> str:
    lines = []
    for folder in folders():
        files = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".proto"))
        rows = [(path.name, first_line(path)) for path in files if path.stat().st_size]
        about = dict(rows).pop("__init__.py", "")
        rows = [row for row in rows if row[0] not in ("__init__.py", "__main__.py")]
        if rows or about:
            lines += [f"### {folder.relative_to(ROOT)}/", "", about, ""] if about else []
            lines += [] if about else [f"### {folder.relative_to(ROOT)}/", ""]
            lines += [f"- `{name}` {text}" for name, text in rows]
            lines += [""] if rows else []
    return "\n".join(lines) + "\n"


def main() -> None:
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{listing()}{END}{after}"
    if "--check" in sys.argv:
        if wanted != text:
            sys.exit("ARCHITECTURE.md's list of files is out of date: make fix")
    else:
        DOCUMENT.write_text(wanted)


if __name__ == "__main__":
    main()

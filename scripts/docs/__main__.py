"""Keep the generated pages of docs/ equal to the code.

python -m scripts.docs           writes the pages
python -m scripts.docs --check   exits 1 if a page is out of date, or figures do not name
                                 their commit and processor
"""

import sys
from pathlib import Path

from scripts.docs import api, architectures, configuration, errors, figures, metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "api.md": api.page,
    "architectures.md": architectures.page,
    "configuration.md": configuration.page,
    "errors.md": errors.page,
    "metrics.md": metrics.page,
}
NOTE = "<!-- written by python -m scripts.docs: change the code, then make fix -->\n\n"


def main() -> None:
    """Write the pages, or check them."""
    stale = []
    for name, page in PAGES.items():
        path, wanted = DOCS / name, NOTE + page()
        if "--check" not in sys.argv:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            stale.append(f"docs/{name}")
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}: make fix")
    if "--check" in sys.argv and (wrong := figures.problems()):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()

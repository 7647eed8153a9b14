"""Write measurements into docs/faults.md: `python -m bench.faults.page RESULTS.json …`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.faults.rows import ROWS
from bench.harness import ROOT

PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- rows: written by bench/faults/page.py -->", "<!-- end of rows -->"
COLUMNS = (
    *("fault", "row", "runs", "right", "failed", "wrong", "cut"),
    *("gap p99, s", "gap max, s", "released, s", "holds"),
)
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"


def main(paths: Sequence[str]) -> None:
    """Replace the tables of the page by those of results that `--json` wrote."""
    documents = [json.loads(Path(path).read_text()) for path in paths]
    groups: dict[tuple[str, str], list[Any]] = {}
    for document in documents:
        for result in document["results"]:
            groups.setdefault((result["engine"], result["dtype"]), []).append(result)
    processors = ", ".join(sorted({document["processor"] for document in documents}))
    tables = [f"Processor: {processors}.\n"]
    for (engine, dtype), results in sorted(groups.items()):
        seeds = sorted({result["seed"] for result in results})
        kind = engine if engine == "sim" else f"{engine}, {dtype}"
        numbers = ", ".join(map(str, seeds))
        tables.append(f"\n**Engine: {kind}; seeds {numbers}.**\n\n{HEADER}{_rows(results)}")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{''.join(tables)}\n{END}{after}")


def _rows(results: Sequence[Any]) -> str:
    lines = []
    for name, row in ROWS.items():
        runs = [result for result in results if result["row"] == name]
        if not runs:
            continue
        surfaces = [result[api] for result in runs for api in ("grpc", "http")]
        held = sum(result["verdict"] == "held" for result in runs)
        cells = [
            row.what,
            f"`{name}`",
            len(runs),
            *(sum(one[key] for one in surfaces) for key in ("ok", "failed", "wrong", "cut")),
            max(one["gap_p99"] or 0.0 for one in surfaces),
            max(one["gap_max"] for one in surfaces),
            max(result["released_seconds"] for result in runs),
            "yes" if held == len(runs) else f"{held} of {len(runs)}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |\n")
    return "".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])

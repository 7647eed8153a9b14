"""Write the files from which clients in other languages are generated.

`python scripts/publish_protos.py DIRECTORY` writes the public protos, as a descriptor set with
comments (`baton-v1.binpb`, which protoc and buf read) and as files (`baton-v1-protos.tar.gz`).
baton.internal.v1, the protocol between the processes of a cluster, is not published.
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
    """Write both files; equal protos give equal bytes.

    Args:
        target: the directory, created if it does not exist.

    Raises:
        subprocess.CalledProcessError: protoc failed; its message is on stderr.
    """
    target.mkdir(parents=True, exist_ok=True)
    sources = sorted((PROTOS / "baton" / "v1").glob("*.proto"))
    names = [source.relative_to(PROTOS).as_posix() for source in sources]
    includes = ["-I", str(PROTOS), "-I", str(google_protos())]
    options = ["--include_imports", "--include_source_info", *includes]
    out = f"--descriptor_set_out={target / DESCRIPTORS}"
    protoc = [sys.executable, "-m", "grpc_tools.protoc"]
    subprocess.run([*protoc, *options, out, *names], check=True)
    # The tools of some languages do not include it; all include google/protobuf.
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

"""Copy the imported google/rpc protos to build/googleapis, where buf finds them."""

import shutil

from protoc import ROOT, google_protos


def copy() -> None:
    """Replace build/googleapis."""
    target = ROOT / "build" / "googleapis"
    shutil.rmtree(target, ignore_errors=True)
    (target / "google" / "rpc").mkdir(parents=True)
    source = google_protos() / "google" / "rpc"
    for name in ("status.proto", "error_details.proto"):
        shutil.copy(source / name, target / "google" / "rpc" / name)


if __name__ == "__main__":
    copy()

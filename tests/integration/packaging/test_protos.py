"""What a release publishes for other languages."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def descriptors(published: Path) -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString((published / "baton-v1.binpb").read_bytes())


def test_the_public_protos_are_published_and_no_others(
    descriptors: descriptor_pb2.FileDescriptorSet, published: Path
) -> None:
    names = [file.name for file in descriptors.file]
    kinds = "common", "conversations", "inference"
    ours = [f"baton/v1/{kind}.proto" for kind in kinds]
    theirs = ["google/protobuf/any.proto", "google/rpc/status.proto"]
    assert sorted(names) == ours + theirs
    with tarfile.open(published / "baton-v1-protos.tar.gz") as archive:
        assert archive.getnames() == [*ours, "google/rpc/status.proto"]
        for name in ours:
            member = archive.extractfile(name)
            assert member is not None
            assert member.read() == (ROOT / "protos" / name).read_bytes()


def test_comments_survive(descriptors: descriptor_pb2.FileDescriptorSet) -> None:
    for file in descriptors.file:
        comments = [place.leading_comments for place in file.source_code_info.location]
        assert sum(bool(comment) for comment in comments) > len(file.message_type)


def test_equal_protos_make_equal_files(
    published: Path, publish_protos: Callable[[Path], Path], tmp_path: Path
) -> None:
    again = publish_protos(tmp_path)
    for path in published.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()

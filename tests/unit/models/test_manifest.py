"""SHA256SUMS of others, and which files are wanted."""

import pytest

from baton.models.errors import PullError
from baton.models.sources.manifest import parse_sums
from baton.models.sources.select import FileSelection, check_listing
from baton.models.sources.source import ModelListing, RemoteFile, list_revision

A, B = "a" * 64, "B" * 64

BAD = {
    "": "lists no file",
    "\n\n": "lists no file",
    f"{A} config.json": "Line 1 of SHA256SUMS of here is not a SHA-256",
    f"{A}  one\n{A[1:]}  two": "Line 2 of SHA256SUMS",
    f"{A}  ../one": "path that cannot be used",
    f"{A}  /etc/passwd": "path that cannot be used",
    f"{A}  one\n{B}  ./one": "'one' twice",
    f"{A}  one\n{B}  one/two": "a file and a folder",
    "<html>not found</html>": "Line 1",
}


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_bad_sums_are_refused(text: str) -> None:
    with pytest.raises(PullError, match=BAD[text]):
        parse_sums(text.encode(), "here")


def test_sums_are_read_as_sha256sum_writes_them() -> None:
    text = f"{A}  config.json\n{B} *folder/a b.json\n\n{A}  ./c.txt\n"
    assert parse_sums(text.encode(), "here") == {
        "config.json": A,
        "folder/a b.json": B.lower(),
        "c.txt": A,
    }


WANTED = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "merges.txt",
    "model-00001-of-00002.safetensors", "model.safetensors.index.json", "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja", "LICENSE", "LICENSE.md", "NOTICE", "README.md",
}  # fmt: skip
UNWANTED = {
    "pytorch_model.bin", "model.pt", "model.gguf", "tf_model.h5", "flax_model.msgpack",
    "original/consolidated.00.pth", "original/params.json", "consolidated.safetensors",
    "onnx/config.json", ".gitattributes", ".cache/x.json", "figures/loss.png", "modeling.py",
    "baton-model.json", "baton-partial.json",
}  # fmt: skip


def test_what_serving_needs_is_wanted_and_no_pickles() -> None:
    wants = FileSelection().wants
    assert {path for path in WANTED | UNWANTED if wants(path)} == WANTED


def test_patterns_replace_and_add() -> None:
    wants = FileSelection(["*.bin", "original/*"], ["*02.bin"]).wants
    paths = ("a01.bin", "a02.bin", "config.json", "original/params.json", "baton-model.json")
    assert [path for path in paths if wants(path)] == ["a01.bin", "original/params.json"]
    wants = FileSelection((), ["*.txt"]).wants
    assert wants("config.json")
    assert not wants("merges.txt")
    assert not wants("original/params.json")


def listing(*files: RemoteFile) -> ModelListing:
    return ModelListing("hf://org/name", "main", files)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "has no file that is wanted"),
        ([RemoteFile("../a.json", 1, None)], "a file that cannot be stored: '../a.json'"),
        ([RemoteFile("a.json", -1, None)], "says that a.json has -1 bytes"),
        ([RemoteFile("a.json", 1, None)] * 2, "'a.json' is there twice"),
        ([RemoteFile(f"{n}.json", 1, None) for n in range(10_001)], "has 10001 files, more than"),
    ],
)
def test_listings_that_cannot_be_stored_are_refused(files: list[RemoteFile], sentence: str) -> None:
    with pytest.raises(PullError, match=sentence):
        check_listing(listing(*files))


def test_a_list_has_a_name_of_its_own() -> None:
    one, two = RemoteFile("a", 1, None), RemoteFile("b", 2, None)
    assert list_revision([one, two]) == list_revision([two, one])
    assert len({list_revision(x) for x in ([one], [two], [one, two], [])}) == 4

"""Paths from elsewhere: those that stay below a directory pass, and no others."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.engine.checkpoint.paths import check_path, check_paths

BAD = {
    "": "relative path",
    "/etc/passwd": "relative path",
    "a\\b": "relative path",
    "../a": "below the directory",
    "a/../../b": "below the directory",
    "a//b": "below the directory",
    "a/": "below the directory",
    "./a": "below the directory",
    "a\nb": "cannot be printed",
    "a\0": "cannot be printed",
    "a\u202eb": "cannot be printed",
    "x" * 256: "more than 255 bytes",
    "ä" * 128: "more than 255 bytes",
    "/".join("abcdefghi"): "more than 8 parts",
}


@pytest.mark.parametrize("path", BAD, ids=ascii)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=BAD[path]):
        check_path(path)


@given(st.text(max_size=30))
def test_what_passes_stays_below(path: str) -> None:
    try:
        check_path(path)
    except ValueError:
        return
    parts = PurePosixPath("/model", path).parts
    assert parts[:2] == ("/", "model")
    assert ".." not in parts
    assert len(parts) > 2


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b", "a/b/c"]])
def test_paths_that_exclude_each_other_are_refused(paths: list[str]) -> None:
    with pytest.raises(ValueError, match=r"twice|file and a folder"):
        check_paths(paths)


def test_paths_of_one_folder_go_together() -> None:
    check_paths(["config.json", "additional_chat_templates/tool_use.jinja", "config.json.bak"])

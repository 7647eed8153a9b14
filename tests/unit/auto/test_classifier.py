"""Classifiers: labels within a deadline, and what happens without one."""

import threading

import pytest

from baton.auto.classifier import Classifier, load_classifier
from baton.auto.features import RequestFeatures

REQUEST = RequestFeatures(("Hello",), 1)
LONG = 60.0
"""A deadline that no machine misses."""


class Slow:
    """A function that returns once it may; `calls` counts how often it began."""

    def __init__(self) -> None:
        self.may_return = threading.Event()
        self.calls = 0

    def __call__(self, features: RequestFeatures) -> str:
        self.calls += 1
        self.may_return.wait()
        return features.text


async def test_a_late_label_is_not_waited_for_and_holds_up_no_other_request() -> None:
    slow = Slow()
    classifier = Classifier(slow, 0.01)
    try:
        assert [await classifier.label(REQUEST) for _ in range(3)] == ["", "", ""]
        assert slow.calls == 1, "none is asked while a late call runs"
    finally:
        slow.may_return.set()
        classifier.close()


async def test_it_labels_again_once_a_late_call_has_returned() -> None:
    slow = Slow()
    classifier = Classifier(slow, 0.01)
    try:
        assert await classifier.label(REQUEST) == ""
        slow.may_return.set()
        classifier._seconds = LONG
        while not await classifier.label(REQUEST):
            pass
    finally:
        classifier.close()


@pytest.mark.parametrize("wrong", [lambda _: 1 / 0, lambda _: 3, lambda _: None])
async def test_a_failure_is_no_label(wrong: object) -> None:
    classifier = Classifier(wrong, LONG)  # type: ignore[arg-type]
    try:
        assert await classifier.label(REQUEST) == ""
        assert await classifier.label(REQUEST) == ""
    finally:
        classifier.close()


def test_a_classifier_is_found_by_its_path() -> None:
    assert load_classifier("baton.auto.code:has_code").__name__ == "has_code"
    for path, sentence in (
        ("no.such.module:x", "cannot be imported: No module named 'no'"),
        ("baton.auto.code:nothing", "cannot be imported: module 'baton.auto.code' has no"),
        ("baton.auto.code:_LINES", "is not a function"),
    ):
        with pytest.raises(ValueError, match=sentence):
            load_classifier(path)

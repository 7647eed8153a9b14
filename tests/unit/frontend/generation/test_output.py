"""Where outputs end, and what their text is."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from baton.request.stream_events import FinishReason
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.models.model import ServedModel
from services.frontend.requests.request import ResolvedRequest

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
RequestFor = Callable[..., ResolvedRequest]


def ids(text: str) -> list[int]:
    return [ord(letter) - 33 for letter in text]


def test_it_ends_at_max_tokens(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for(max_tokens=3), 0)
    delta = output.push(ids("abcde"))
    assert (delta.text, list(delta.token_ids), output.reason) == ("abc", ids("abc"), LENGTH)


def test_end_of_sequence_counts_but_is_no_text(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for(), 0)
    delta = output.push([*ids("ab"), 0, *ids("c")])
    assert (delta.text, list(delta.token_ids)) == ("ab", [*ids("ab"), 0])
    assert (output.reason, output.stop_string) == (STOP, "")


def test_end_of_sequence_can_be_ignored(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for(ignore_eos=True, stop_token_ids=ids("c")), 0)
    assert output.push([*ids("a"), 0, *ids("bcd")]).text == "a!b"
    assert output.reason == STOP


def test_nothing_ends_it_before_min_tokens(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for(min_tokens=2), 0)
    assert output.push([0, 0, 0, 0]).text == "!!"
    assert len(output.token_ids) == 3


def test_a_stop_string_ends_it_at_the_token_that_completes_it(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for("bc"), 0)
    assert output.push(ids("ab")).text == "a"
    delta = output.push(ids("cdef"))
    assert (delta.text, list(delta.token_ids)) == ("", ids("c"))
    assert (output.reason, output.stop_string) == (STOP, "bc")


def test_what_was_held_back_comes_at_the_end(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for("bcd", max_tokens=3), 0)
    assert [output.push([token]).text for token in ids("abc")] == ["a", "", "bc"]
    assert output.reason == LENGTH
    output = ChoiceOutput(request_for("bcd"), 0)
    assert output.push(ids("abc")).text == "a"
    assert output.end(STOP).text == "bc"


def test_a_stop_string_may_be_completed_by_a_broken_character(
    request_for: RequestFor, model: ServedModel
) -> None:
    half = next(i for i in range(260) if model.tokenizer.piece(i) == b"\xf0")
    output = ChoiceOutput(request_for("a\N{REPLACEMENT CHARACTER}", max_tokens=2), 0)
    assert output.push([*ids("a"), half]).text == ""
    assert (output.reason, output.stop_string) == (STOP, "a\N{REPLACEMENT CHARACTER}")


@given(
    tokens=st.lists(st.integers(0, 259), max_size=60),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=60),
    stop=st.lists(st.sampled_from(["the", "é", "he he", "!"]), max_size=3),
    eos=st.booleans(),
)
def test_the_size_of_steps_changes_nothing(
    request_for: RequestFor, tokens: list[int], sizes: list[int], stop: list[str], eos: bool
) -> None:
    request = request_for(*stop, ignore_eos=eos)
    whole, parts = ChoiceOutput(request, 0), ChoiceOutput(request, 0)
    text = whole.push(tokens).text
    joined, at = "", 0
    for size in sizes * len(tokens):
        if at >= len(tokens) or parts.ended:
            break
        delta = parts.push(tokens[at : at + size])
        assert delta.position == at
        joined, at = joined + delta.text, at + size
    assert (joined, parts.token_ids) == (text, whole.token_ids)
    assert (parts.reason, parts.stop_string) == (whole.reason, whole.stop_string)


def test_what_ends_it_may_be_part_of_its_text(request_for: RequestFor) -> None:
    output = ChoiceOutput(replace(request_for("bc"), include_stop=True), 0)
    assert output.push(ids("abcd")).text == "abc"
    assert output.stop_string == "bc"
    output = ChoiceOutput(replace(request_for(stop_token_ids=ids("c")), include_stop=True), 0)
    assert output.push(ids("abcd")).text == "abc"
    assert (output.reason, output.stop_token_id) == (STOP, ids("c")[0])


def test_only_the_requests_own_stop_tokens_are_told(request_for: RequestFor) -> None:
    output = ChoiceOutput(request_for(stop_token_ids=[0, 5]), 0)
    output.push([0])  # the model's end of sequence, too
    assert (output.reason, output.stop_token_id) == (STOP, None)
    output = ChoiceOutput(request_for(stop_token_ids=[0, 5], ignore_eos=True), 0)
    output.push([0])
    assert output.stop_token_id == 0


def test_an_output_of_no_tokens(request_for: RequestFor) -> None:
    output = ChoiceOutput(replace(request_for(max_tokens=1), no_output=True), 0)
    delta = output.push(ids("a"))
    assert (delta.text, list(delta.token_ids), output.token_ids) == ("", [], [])
    assert output.reason == LENGTH


def test_special_tokens_have_text_if_that_is_asked_for(request_for: RequestFor) -> None:
    special = request_for().model.tokenizer.encode("<eos>")
    for shown, text in ((False, "a"), (True, "a<eos>")):
        output = ChoiceOutput(replace(request_for(ignore_eos=True), special_text=shown), 0)
        assert output.push([*ids("a"), *special]).text == text

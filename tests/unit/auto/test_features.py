"""Features of requests: code, languages, questions, and estimates of tokens."""

import inspect
import textwrap

import pytest

from baton.auto.code import has_code
from baton.auto.features import (
    SAMPLE_CHARACTERS,
    RequestFeatures,
    tokens_of,
)

PROSE = """I was at the market yesterday, and bought (among others) three pears; they were sweet.
Could you suggest a cake? My class of children loves it. If it rains, we stay in."""


@pytest.mark.parametrize(
    "text",
    [
        inspect.getsource(textwrap),
        "What is wrong here?\nfor (int i = 0; i < n; i++) {\n  sum += a[i];\n}",
        'fn main() -> Result<()> {\n    println!("hi")\n}',
        "SELECT name FROM users WHERE id = 3",
        "it fails:\n  at com.example.Main.run(Main.java:12)",
        "explain `x`:\n```\nx\n```",
        "def area(r):\n    return 3 * r",
        "let total = items.length",
    ],
)
def test_code_is_seen(text: str) -> None:
    assert has_code(text)
    assert has_code(f"{PROSE}\n{text}\n{PROSE}")


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "Translate: good morning; good evening; good night.",
        "Shopping list:\n- milk\n- bread\n- eggs",
        "Update me from time to time on where you are.",
        "",
    ],
)
def test_prose_is_not_code(text: str) -> None:
    assert not has_code(text)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How do I get from the station to the museum?", "en"),
        ("Wie komme ich mit dem Bus von hier zu der Kirche?", "de"),
        ("Quelle est la capitale du pays qui est dans le nord ?", "fr"),
        ("¿Cómo puedo llegar a la estación con mi perro?", "es"),
        ("Come si dice questo in una lettera alla nonna?", "it"),
        ("東京の天気を教えてください", "ja"),
        ("请告诉我北京的天气", "zh"),
        ("서울 날씨를 알려 주세요", "ko"),
        ("Какая погода в Москве?", "ru"),
        ("ما هو الطقس في القاهرة؟", "ar"),
        ("xyzzy 123", "und"),
        ("", "und"),
    ],
)
def test_languages_are_told_apart(text: str, language: str) -> None:
    assert RequestFeatures((text,), 1).language == language


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Who? What?! Where", 2),
        ("Really???", 1),
        ("x = a ? b : c", 0),
        ("https://host/?q=1", 0),
        ("何ですか？どこですか？", 2),
        ('Is "this?" one', 1),
    ],
)
def test_questions_are_counted(text: str, count: int) -> None:
    assert RequestFeatures((text,), 1).questions == count


def test_long_texts_are_sampled_and_estimated() -> None:
    long = "a" * 10**6 + "end"
    sample = RequestFeatures(["begin", long], 1).text
    assert len(sample) <= SAMPLE_CHARACTERS + 1
    assert sample.startswith("begin")
    assert sample.endswith("end")
    assert tokens_of(["a" * 4000]) == 1000
    assert tokens_of(["天" * 4000]) == 3000
    assert tokens_of([""]) == 1
    assert tokens_of(["\ud800"]) == 1  # half of a surrogate pair, which JSON may have


def test_words_are_those_at_the_edges_of_the_last_messages() -> None:
    pasted = "report " * 100
    features = RequestFeatures(["old words", *["later"] * 3, f"sum this up: {pasted} please"], 1)
    assert {"later", "sum", "report", "please"} == features.word_set - {
        "this",
        "up",
        "repor",
        "ort",
    }
    middle = "a " * 200 + "prove" + " b" * 200
    assert "prove" not in RequestFeatures([middle], 1).word_set

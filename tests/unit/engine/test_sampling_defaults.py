"""What generation_config.json recommends."""

import json
from pathlib import Path
from typing import Any

import pytest

from baton.engine.checkpoint.sampling_defaults import read_sampling_defaults
from baton.engine.support.documents import CheckpointError
from baton.sampling import SamplingParams


def recommend(path: Path, **said: Any) -> Path:
    (path / "generation_config.json").write_text(json.dumps(said))
    return path


def test_what_it_says_of_sampling_is_read(tmp_path: Path) -> None:
    assert read_sampling_defaults(tmp_path) == SamplingParams()
    # Qwen3's, with what is not of a request.
    qwen = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": True, "bos_token_id": 1}
    expected = SamplingParams(temperature=0.6, top_k=20, top_p=0.95)
    assert read_sampling_defaults(recommend(tmp_path, **qwen)) == expected
    other = {"repetition_penalty": 1.05, "max_new_tokens": 2048, "top_k": -1, "min_p": None}
    expected = SamplingParams(repetition_penalty=1.05, max_tokens=2048)
    assert read_sampling_defaults(recommend(tmp_path, **other)) == expected


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"top_p": 1.5}, "top_p 1.5 is out of range: 0 to 1.*SAMPLING_DEFAULTS to none"),
        ({"temperature": "hot"}, "is damaged"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    tmp_path: Path, said: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        read_sampling_defaults(recommend(tmp_path, **said))

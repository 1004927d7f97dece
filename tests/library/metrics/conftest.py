"""Java runs only where it is; what needs it skips with the reason."""

import shutil
from collections.abc import Callable, Sequence

import pytest

from diptych.metrics.java import unavailable


@pytest.fixture(scope="session")
def java_tokenise() -> Callable[[Sequence[str]], list[list[str]]]:
    """coco-caption's own tokeniser. A hard space inside its token parts it, as coco-caption's str.split does."""
    if shutil.which("java") is None:
        pytest.skip("no Java on the PATH, so nothing to compare the tokeniser with")
    if reason := unavailable("METEOR"):
        pytest.skip(reason)
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    def run(sentences: Sequence[str]) -> list[list[str]]:
        cut = PTBTokenizer().tokenize({str(n): [{"caption": text}] for n, text in enumerate(sentences)})
        return [cut[str(n)][0].split() for n in range(len(sentences))]

    return run

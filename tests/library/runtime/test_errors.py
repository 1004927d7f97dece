"""`explained`: one way in which errors of Python and of libraries become errors of Diptych."""

from zipfile import BadZipFile

import pytest

from diptych.runtime.errors import CheckpointError, DataError, explained


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (OSError(13, "Permission denied", "a.json"), "Permission denied"),
        (ValueError("found 2 rows\nand more"), "found 2 rows"),
        (KeyError("names"), "KeyError('names')"),
        (TypeError(), "TypeError"),
        (BadZipFile("no end"), "no end"),
    ],
)
def test_an_error_of_another_library_becomes_one_line_with_its_reason(raised: Exception, reason: str) -> None:
    with pytest.raises(CheckpointError) as caught, explained(CheckpointError, "a is damaged", "copy it", BadZipFile):
        raise raised
    assert str(caught.value) == f"a is damaged ({reason}); copy it"
    assert caught.value.__cause__ is raised


def test_errors_of_diptych_and_errors_that_are_not_listed_pass() -> None:
    for passes in (DataError("an empty file"), BadZipFile("no end"), KeyboardInterrupt()):
        with pytest.raises(type(passes)) as caught, explained(CheckpointError, "a is damaged", "copy it"):
            raise passes
        assert caught.value is passes

"""The words of a field are found where they are written: below it, in the class that has it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from rljob.api.fields import description_of


class Below(BaseModel):
    first: int = 1
    """In one line."""
    second: int = 2
    _not_a_field: str = "This is a value."
    third: int = 3
    """In a paragraph

    and one more,
        which is indented.
    """
    fourth: int = Field(4, description="In the field itself.")


class Heir(Below):
    second: int = 20
    """Only the heir has words for it."""
    third: int = 30


def test_each_field_has_the_docstring_below_it() -> None:
    assert description_of(Below, "first") == "In one line."
    assert description_of(Below, "second") == ""
    assert description_of(Below, "third") == "In a paragraph\n\nand one more,\n    which is indented."
    assert description_of(Below, "fourth") == "In the field itself."


def test_an_inherited_field_keeps_its_words_and_one_that_is_defined_anew_has_its_own() -> None:
    assert description_of(Heir, "first") == "In one line."
    assert description_of(Heir, "second") == "Only the heir has words for it."
    assert description_of(Heir, "third") == ""


def test_a_class_without_a_source_has_no_words() -> None:
    typed: dict[str, Any] = {"BaseModel": BaseModel, "__name__": "typed at a prompt"}
    exec('class Typed(BaseModel):\n    first: int = 1\n    """In one line."""\n', typed)
    assert description_of(typed["Typed"], "first") == ""

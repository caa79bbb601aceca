"""What an agent says when it looked one of its effects up: the answer to our question, or to our list."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from runs.evidence import canonical
from runs.fields import In, Name, Note

from .providers import answers
from .reconcile import ABSENT, MOST_COUNTED, PARTIAL, Answer


class BadAnswer(ValueError):
    """This is no answer. It counts as "can't tell"."""


class LookedUpIn(In):
    """What is there under the key. A look-up that failed is "can't tell", never "absent".

    `items`: which part of it is there, of a partial one. `count`: how many objects, if that can be seen.
    `fenced`: absent, and the provider will never apply this key from now on. `job`: how far a job is.
    """

    answer: Literal["present", "partial", "absent", "can't tell"]
    detail: Note = ""
    observed: dict[str, Any] = {}
    items: Any = None
    ref: Name = ""
    count: Annotated[int, Field(strict=True, ge=0, le=MOST_COUNTED)] | None = None
    fenced: StrictBool = False
    job: Literal["", "accepted", "running", "completed", "failed", "unknown"] = ""

    @model_validator(mode="after")
    def _of_one_piece(self) -> Self:
        if self.fenced and self.answer != ABSENT:
            raise PydanticCustomError("fenced", "Only a key that is absent can be fenced")
        if self.items is not None and self.answer != PARTIAL:
            raise PydanticCustomError("items", "Only a partial answer says which items")
        if len(canonical(answers.tidy([self.observed, self.items])).encode()) > answers.KEPT_BYTES:
            raise PydanticCustomError("size", "observed and items should have at most 64 KiB as JSON")
        return self

    def told(self) -> Answer:
        """As reconcile hears it: without what looks like a secret."""
        return Answer(
            self.answer,
            answers.tidy(self.detail),
            answers.tidy(self.observed),
            items=answers.tidy(self.items),
            provider_ref=answers.tidy(self.ref),
            count=self.count,
            fenced=self.fenced,
            job=self.job,
        )


def read(body: bytes) -> Answer:
    """The answer in these bytes. Raises BadAnswer, whose text repeats nothing of them."""
    try:
        return LookedUpIn.model_validate(answers.read(body)).told()
    except answers.NotData as error:
        raise BadAnswer("the answer is not JSON") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"])
        raise BadAnswer(f"the answer can't be used: {where} {first['msg']}"[:300]) from error

"""What a kind of provider browser says of a page: the steps up to its one action, and how to read the end.

Selectors are Playwright's. A value goes into a field as text and never into a selector.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from effects.new_kind import KEY, BadKind
from effects.reconcile import ABSENT, CANT_TELL, PRESENT, Answer

from . import answers
from .shape import Sendable

VERBS = ("fill", "select", "click", "wait")
STEPS_MAX, SELECTOR_MAX, VALUE_MAX, TEXTS_MAX = 40, 300, 10_000, 20
TRY_MS = 8_000  # of one step; the whole has a limit of its own
PLACE = re.compile(r"\{(key|target|amount|body(?:\.[\w-]+)+)\}")


class BadScript(ValueError):
    """The body lacks what the page is to be given. Nothing was done."""


@dataclass(frozen=True)
class Step:
    """One thing to do on a page: fill or select (with a value), click, or wait for what a selector finds."""

    verb: str
    selector: str
    value: str = ""

    async def do(self, page: Any) -> None:
        """Raises Playwright's errors."""
        found = page.locator(self.selector)
        if self.verb == "fill":
            await found.fill(self.value, timeout=TRY_MS)
        elif self.verb == "select":
            await found.select_option(self.value, timeout=TRY_MS)
        elif self.verb == "click":  # what the click leads to is looked at afterwards
            await found.click(timeout=TRY_MS, no_wait_after=True)
        else:
            await found.first.wait_for(timeout=TRY_MS)

    async def try_out(self, page: Any) -> None:
        """Whether it could be done now: one such thing, in sight, enabled, under nothing else."""
        found = page.locator(self.selector)
        if self.verb == "click":
            await found.click(timeout=TRY_MS, trial=True)
        else:
            await found.wait_for(timeout=TRY_MS)


@dataclass(frozen=True)
class Script:
    """What comes before the action, and the action."""

    before: list[Step]
    action: Step


def script_of(send: dict[str, Any], effect: Sendable) -> Script:
    """The steps with their values filled in from the effect. Raises BadScript."""
    steps = [_step(one, effect) for one in send["do"]]
    return Script(steps[:-1], steps[-1])


def _step(one: dict[str, Any], effect: Sendable) -> Step:
    verb = next(name for name in VERBS if name in one)
    return Step(verb, str(one[verb]), filled(str(one.get("with", "")), effect))


def filled(text: str, effect: Sendable) -> str:
    """A text with its places filled in, once: what a value holds is no place. Raises BadScript."""
    return PLACE.sub(lambda found: _value(found[1], effect), text)


def _value(name: str, effect: Sendable) -> str:
    if not name.startswith("body."):
        return str(getattr(effect, name))
    try:
        found = answers.at(answers.read(bytes(effect.body)), name.removeprefix("body."))
    except answers.NotData as error:
        raise BadScript("the body is not JSON") from error
    if found is None or isinstance(found, dict | list):
        raise BadScript(f"the body has no value at {name.removeprefix('body.')}")
    text = found if isinstance(found, str) else json.dumps(found)
    if len(text) > VALUE_MAX or answers.UNKEEPABLE.search(text):
        raise BadScript(f"{name} can't be typed into a page")
    return text


# reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """How a page shows it: `selector` finds something (that holds `text` as whole words, or is `equals`): it
    happened; `absent_selector` finds something: it did not. Both, or neither: can't tell. `key` stands where
    they say {key}."""

    selector: str
    text: str = ""
    equals: str = ""
    key: str = ""
    absent_selector: str = ""
    counts: bool = False

    @classmethod
    def of(cls, told: dict[str, Any] | None, effect: Sendable) -> Rule | None:
        """None for a kind that says nothing of it."""
        if not told:
            return None
        said = {one: str(told.get(one) or "") for one in ("selector", "text", "equals", "absent_selector")}
        return cls(**said, key=effect.key, counts=bool(told.get("counts")))

    async def read(self, page: Any) -> Answer:
        """What the page shows at this moment. Raises Playwright's errors."""
        found = await page.locator(self.selector).all_inner_texts() if self.selector else []
        texts = [text.strip() for text in found]
        fitting = [text for text in texts if self._fits(text)]
        denied = await page.locator(self.absent_selector).all_inner_texts() if self.absent_selector else []
        observed = self._observed(texts, denied)
        if bool(fitting) == bool(denied):
            return Answer(CANT_TELL, "the page shows both" if denied else "the page shows neither", observed)
        if denied:
            return Answer(ABSENT, f"the page shows {self.absent_selector}", observed)
        count = len(fitting) if self.counts else None
        return Answer(PRESENT, f"the page shows {self.selector}", observed, count=count)

    def _fits(self, text: str) -> bool:
        if self.equals:
            return text == self.equals.replace(KEY, self.key).strip()
        return not self.text or holds(text, self.text, self.key)

    def _observed(self, texts: list[str], denied: list[str]) -> dict[str, Any]:
        seen = {self.selector: texts, self.absent_selector: [text.strip() for text in denied]}
        return {"page": {name: _kept(said) for name, said in seen.items() if name}}


def holds(shown: str, wanted: str, key: str) -> bool:
    """Whether a page's text holds the wanted one as whole words. A key at its edge is a word between spaces,
    quotes, brackets and the signs that end a sentence: order-1 is not in order-10, nor in order-1/b."""
    wanted = wanted.strip()
    inner = re.escape(key).join(re.escape(part) for part in wanted.split(KEY))
    left = KEY_BEGINS if wanted.startswith(KEY) else _edge(wanted[:1], WORD_BEGINS)
    right = KEY_ENDS if wanted.endswith(KEY) else _edge(wanted[-1:], WORD_ENDS)
    return re.search(left + inner + right, shown) is not None


QUOTES = "\"'\u2018\u2019\u201c\u201d\u201e«»"
KEY_BEGINS, KEY_ENDS = rf"(?:^|\s)[{QUOTES}(\[{{<]*", rf"[{QUOTES})\]}}>.,;:!?…]*(?=\s|$)"
WORD_BEGINS, WORD_ENDS = r"(?<!\w)", r"(?!\w)"


def _edge(sign: str, boundary: str) -> str:
    """Where a word ends, in a script that sets words apart: "paid" is not in "unpaid"."""
    return boundary if sign.isalnum() and unicodedata.category(sign) != "Lo" else ""


def _kept(texts: list[str]) -> Any:
    return answers.tidy([text[:200] for text in texts[:TEXTS_MAX]])


# registering --------------------------------------------------------------------------------------


def check_script(send: dict[str, Any]) -> None:
    """Raises BadKind."""
    steps, commit = send.get("do"), send.get("commit")
    if not isinstance(steps, list) or not 1 <= len(steps) <= STEPS_MAX:
        raise BadKind("send.do", f"It is a list of 1 to {STEPS_MAX} steps")
    for one in steps:
        _check_step(one)
    if commit not in (None, len(steps) - 1) or isinstance(commit, bool):
        raise BadKind("send.commit", "The last step changes something: nothing is done after it")
    if "wait" in steps[-1]:
        raise BadKind("send.do", "The last step is the one that changes something; to wait changes nothing")


def _check_step(one: Any) -> None:
    verbs = [name for name in VERBS if isinstance(one, dict) and name in one]
    if len(verbs) != 1 or set(one) - {verbs[0], "with"}:
        raise BadKind("send.do", "A step is one of fill, select, click and wait, with a selector")
    _check_selector("send.do", one[verbs[0]])
    needs = verbs[0] in ("fill", "select")
    if needs != ("with" in one) or not isinstance(one.get("with", ""), str):
        raise BadKind("send.do", "fill and select say `with` what; click and wait do not")
    rest = PLACE.sub("", one.get("with", ""))
    if "{" in rest or "}" in rest:
        raise BadKind("send.do", "Filled in are {key}, {target}, {amount} and {body.path}")


def _check_selector(field: str, selector: Any) -> None:
    if not isinstance(selector, str) or not selector.strip() or len(selector) > SELECTOR_MAX:
        raise BadKind(field, f"A selector is a text of at most {SELECTOR_MAX} characters")


def check_rule(field: str, rule: Any) -> None:
    """Raises BadKind."""
    if not isinstance(rule, dict) or not (rule.get("selector") or rule.get("absent_selector")):
        raise BadKind(field, "It says by which selector the page shows it")
    for name in ("selector", "absent_selector"):
        if rule.get(name) is not None:
            _check_selector(f"{field}.{name}", rule[name])
    if rule.get("text") and rule.get("equals"):
        raise BadKind(field, "It holds `text` or `equals`, not both")

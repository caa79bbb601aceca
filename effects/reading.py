"""Reading a webhook's body by the rules of its account (reads.py). Whatever a stranger sent, nothing raises.

What is compared is read as it came; what is kept is limited, and without what looks like a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runs import bodies, redaction
from runs.evidence import canonical
from runs.problems import Problem

from .providers import answers
from .reconcile import MOST_COUNTED

HAPPENED, PARTLY, DID_NOT = "happened", "partly", "did not happen"
WORDS = {"happened": HAPPENED, "partly": PARTLY, "did_not": DID_NOT}


@dataclass(frozen=True)
class Reading:
    """What an account's rules read in a message. `word`: its own word for the verdict; `job`: for the job."""

    key: str = ""
    verdict: str = ""
    word: Any = None
    job: Any = None
    ref: str = ""
    items: Any = None
    count: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def says_something(self) -> bool:
        return bool(self.key) and (bool(self.verdict) or self.job is not None)


def read(body: bytes, reads: dict[str, Any]) -> tuple[Reading, Any]:
    """What the rules read in a body, and what is kept of it: without secrets, and not too much."""
    kept = answers.keep(body)
    try:
        value = bodies.read(body)
    except Problem:
        return Reading(), kept
    key = _key(answers.at(value, reads["key_path"])) if reads.get("key_path") else ""
    reading = Reading(
        key=key,
        verdict=_verdict(_at(value, reads, "verdict_path"), reads),
        word=_kept(value, reads, "verdict_path"),
        job=_kept(value, reads, "job_path"),
        ref=_text(_at(value, reads, "ref_path")),
        items=_kept(value, reads, "items_path", answers.KEPT_BYTES),
        count=_count(_at(value, reads, "count_path")),
        fields=_observed(value, reads),
    )
    return reading, kept


def _at(value: Any, reads: dict[str, Any], name: str) -> Any:
    return answers.at(value, reads[name]) if reads.get(name) else None


def _kept(value: Any, reads: dict[str, Any], name: str, most: int = answers.KEPT_TEXT) -> Any:
    """What stands there as it is kept: without secrets, and nothing of what is too large."""
    path = reads.get(name)
    found = answers.member(path, answers.at(value, path)) if path else None
    return found if len(canonical(found)) <= most else "[larger than is kept]"


def _key(value: Any) -> str:
    """A key as an effect may have it, or none."""
    fits = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value == value.strip()
    return value if fits and not redaction.holds_secret(value) else ""


def _verdict(word: Any, reads: dict[str, Any]) -> str:
    if word is None:
        return ""
    for name, verdict in WORDS.items():
        if any(answers.same(word, one) for one in reads.get(name, [])):
            return verdict
    return ""


def _text(value: Any) -> str:
    word = isinstance(value, str | int) and not isinstance(value, bool)
    return str(answers.tidy(value))[:300] if word else ""


def _count(value: Any) -> int | None:
    if isinstance(value, list):
        return len(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_COUNTED else None


def _observed(value: Any, reads: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in ("verdict_path", "job_path", "ref_path") if reads.get(name)]
    return {reads[name]: _kept(value, reads, name) for name in names}

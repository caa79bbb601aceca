"""How the webhooks of an account are read: where in the body the key and the verdict stand, and its words.

    {key_path, verdict_path, happened: […], did_not: […], partly: […],
     ref_path?, items_path?, count_path?, job_path?, jobs?: {accepted: […], running: […], …}}

Paths are dotted (`data.0.id`); words are compared as JSON: 1 is not "1".
"""

from __future__ import annotations

from typing import Any

PATHS = ("key_path", "verdict_path", "ref_path", "items_path", "count_path", "job_path")
WORDS = ("happened", "did_not", "partly")
JOBS = ("accepted", "running", "completed", "failed", "unknown")
MOST_WORDS, LONGEST = 20, 200


class BadReads(ValueError):
    """This says nothing that a webhook could be read by."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


def check(reads: dict[str, Any]) -> None:
    """Raises BadReads, which names the field. With no reads at all, webhooks are evidence alone."""
    for name, value in reads.items():
        if name in PATHS:
            _check_path(name, value)
        elif name in WORDS:
            _check_words(name, value)
        elif name == "jobs" and isinstance(value, dict) and set(value) <= set(JOBS):
            for state, words in value.items():
                _check_words(f"jobs.{state}", words)
        else:
            raise BadReads(name, "Nothing is read by this")
    _check_whole(reads)


def _check_whole(reads: dict[str, Any]) -> None:
    if not reads.get("key_path"):
        raise BadReads("key_path", "Say where a webhook tells the effect key")
    told = any(reads.get(name) for name in WORDS)
    if told != bool(reads.get("verdict_path")):
        raise BadReads("verdict_path", "A verdict has a path, and words for happened, did_not or partly")
    if not told and not reads.get("job_path"):
        raise BadReads("verdict_path", "Say where it tells what happened, or how its job stands")
    said = [(type(word), word) for name in WORDS for word in reads.get(name, [])]
    if len(set(said)) < len(said):
        raise BadReads("happened", "A word that says two things says nothing")


def _check_path(name: str, value: Any) -> None:
    fits = isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable() and " " not in value
    if not fits:
        raise BadReads(name, "It should be a dotted path, such as data.object.id")


def _check_words(name: str, value: Any) -> None:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_WORDS:
        raise BadReads(name, f"It should be a list of 1 to {MOST_WORDS} words")
    for word in value:
        if not isinstance(word, str | int | bool) or len(str(word)) > LONGEST:
            raise BadReads(name, "A word is a text, a whole number, true or false")

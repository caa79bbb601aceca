"""Whether a text says something: the one rule for evidence, and for every reason that a verb demands."""

from __future__ import annotations

import unicodedata

UNSEEN = ("Cc", "Cf", "Cs", "Co")
# Letters and signs by their category that show nothing: fillers of Hangul, the empty pattern of Braille, the
# empty note, and what only joins or varies its neighbour.
FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\U0001d159\u034f\u17b4\u17b5")


def words_in(text: str) -> str:
    """The text without what nobody sees, its ends trimmed; "" where it holds no letter and no figure: spaces,
    signs and punctuation alone say nothing."""
    kept = "".join(sign for sign in text if sign in "\n\t" or not _is_unseen(sign))
    return kept.strip() if any(unicodedata.category(sign)[0] in "LN" for sign in kept) else ""


def _is_unseen(sign: str) -> bool:
    return sign in FILLERS or unicodedata.category(sign) in UNSEEN

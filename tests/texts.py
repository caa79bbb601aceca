"""Texts that say nothing, and texts that do: by hand, for everything that has to say something."""

SAYS_NOTHING = [
    *("", "   ", "\n\t ", "\x00"),
    *("\u200b\u200b", "\u2060 \u00a0", "\u202e", "\u061c", "\ufeff"),
    *("\u3164", "\u115f\u1160", "\uffa0", "\u2800", "\u2800 \u3164", "\U0001d159"),
    *("\u0301", "\u034f", "\ufe0f", "\U000e0100"),
    *(".", "...", "-", "—", "?!", "…", "'' \"\"", "()", "*", "_", "\u2713", "$", "+", "👍"),
]
SAYS_SOMETHING = ["a", " a. ", "7", "#7", "ok", "是", "да", "ё", "Ⅳ", "\u3164a", "a\u200bb"]

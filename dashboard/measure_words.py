"""What the seven measures are called, what they mean, and how their figures are said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dashboard import words

from .measures import LIMITS, Measure

TARGET_ACK_S, TARGET_UNKNOWN_S = 1.0, 4 * 3_600.0


@dataclass(frozen=True)
class Term:
    """One measure: its name, definition, formula and target, its names for Prometheus, and of what n is."""

    title: str
    means: str
    formula: str
    target: str
    prometheus: str
    one: str
    many: str


TERMS: dict[int, Term] = {
    1: Term(
        "Request to acknowledgement",
        "From the moment a press reached this server, before it waited for any lock, to the moment after"
        " which no dispatch can succeed there; both by the database’s clock. A stop that is carried on (to"
        " each run of a list, to a child run, to another workspace) counts from the press that it came from."
        " The commit itself comes right after the second moment, and is not in it.",
        "p50, p95 (nearest rank) of the time from arrived_at to gate_at of each stop",
        "p95 under 1 s",
        "allstop_stop_ack_seconds",
        "stop",
        "stops",
    ),
    2: Term(
        "New work after quiescing",
        "Permits of the ordinary guard that were opened behind the line of a stop, at its version or an older"
        " one. Observed by our gates: what never comes to them is not seen.",
        "count of permit.opened lines behind stop.acknowledged or stop.bound of their run,"
        " with carried version ≤ the stop’s version; beside the stops of runs that took effect",
        "0",
        "allstop_post_quiesce_dispatches_total",
        "stop",
        "stops",
    ),
    3: Term(
        "Active effects reconciled",
        "Effects in flight when a stop took effect, that reached a known settlement within the time. One that"
        " is still inside its time counts as not reconciled.",
        "effects whose time from gate_at of the first stop that listed them to settled_at is ≤ the limit,"
        " of all effects on the lists",
        "all within 24 h",
        "allstop_effects_reconciled_ratio",
        "effect",
        "effects",
    ),
    4: Term(
        "Duplicate effects",
        "Keys under which a provider itself showed two objects or more, of effects and compensations that"
        " were retried, or whose run was stopped. Never estimated: a key that could not be counted is in"
        " neither number.",
        "keys counted at the provider with 2 objects or more, of all keys counted",
        "0",
        "allstop_duplicate_effects_total",
        "key",
        "keys",
    ),
    5: Term(
        "Compensations",
        "Compensations that were sent, by what their own verification came to.",
        "verified, failed and unknown, each of all that were sent and are not being checked now",
        "all verified",
        "allstop_compensations_sent",
        "compensation",
        "compensations",
    ),
    6: Term(
        "Time in unknown",
        "How long effects, messages and compensations were unknown before something was known; and how old"
        " those are that are unknown now. What two people accepted as unknown is told apart.",
        "p50, p95 (nearest rank) of the time from unknown_since to settled_at; age: of the oldest open now",
        "p95 under 4 h",
        "allstop_unknown_age_seconds",
        "closed item",
        "closed items",
    ),
    7: Term(
        "Reports with evidence for every effect",
        "Issued report versions in which each effect declared by then has a line of its settlement. Reports"
        " of runs without effects count in neither number.",
        "versions without an effect that lacks such a line, of all issued versions with an effect",
        "all",
        "allstop_reports_with_evidence_total",
        "report",
        "reports",
    ),
}


def length(seconds: float | None) -> str:
    """0.19 s, 12.3 s, 8 min 04 s; a dash of nothing."""
    if seconds is None:
        return "–"
    return f"{seconds:.2f} s" if seconds < 10 else words.span(seconds)


def too_few(n: int) -> str:
    return f"not enough data (n = {n})"


def headline(measure: Measure) -> list[tuple[str, str]]:
    """Pairs of a figure and what it is. Bad news is told of any number; a share or a percentile of too few
    is not."""
    return _HEADLINES[measure.number](measure)


def _lengths(measure: Measure) -> list[tuple[str, str]]:
    if not measure.enough:
        return [("", too_few(measure.n))]
    return [(length(measure.value("p50")), "p50"), (length(measure.value("p95")), "p95")]


def _found(measure: Measure) -> list[tuple[str, str]]:
    if not measure.enough and not measure.count("found"):
        return [("", too_few(measure.n))]
    return [(f"{measure.count('found'):,}", f"in {_n(measure)}")]


def _of(name: str, word: str = "") -> Callable[[Measure], list[tuple[str, str]]]:
    def told(measure: Measure) -> list[tuple[str, str]]:
        if not measure.enough:
            return [("", too_few(measure.n))]
        return [(f"{measure.count(name):,}", f"of {measure.n:,} {word or name}")]

    return told


def _twice(measure: Measure) -> list[tuple[str, str]]:
    if not measure.enough and not measure.count("twice"):
        return [("", too_few(measure.n))]
    return [(f"{measure.count('twice'):,}", f"of {_n(measure)}")]


def _unknown(measure: Measure) -> list[tuple[str, str]]:
    oldest = measure.value("oldest open")
    told = [] if oldest is None else [(length(oldest), "oldest open")]
    return [*_lengths(measure), *told]


_HEADLINES: dict[int, Callable[[Measure], list[tuple[str, str]]]] = {
    1: _lengths,
    2: _found,
    3: _of("in 1 h"),
    4: _twice,
    5: _of("verified"),
    6: _unknown,
    7: _of("whole", "have it"),
}


def _n(measure: Measure) -> str:
    term = TERMS[measure.number]
    return f"{measure.n:,} {term.one if measure.n == 1 else term.many}"


def beside(measure: Measure) -> str:
    """The raw counts in a sentence, however few; also what is in no share."""
    said = _BESIDE[measure.number](measure)
    capped = f" The newest {len(measure.samples):,} of at least as many." if measure.capped else ""
    return f"{said}{capped}"


def _acknowledged(m: Measure) -> str:
    waited, lost = m.beside["waited"], m.beside["not kept"]
    later = f" {waited:,} more waited for a run that came later." if waited else ""
    old = f" Of {lost:,} more no arrival is kept: older than that, or nobody pressed." if lost else ""
    return f"n = {_n(m)}.{later}{old}"


def _shares_of(m: Measure) -> str:
    said = "; ".join(f"{name}: {m.count(name):,} of {m.n:,}" for name in LIMITS)
    open_ones = m.beside["in 24 h"]
    return f"{said}.{f' {open_ones:,} not settled and not yet 24 h old.' if open_ones else ''}"


def _keys(m: Measure) -> str:
    more = m.beside["uncounted"]
    return f"{m.count('twice'):,} of {_n(m)}." + (f" {more:,} more could not be counted." if more else "")


def _came_to(m: Measure) -> str:
    said = ", ".join(f"{m.count(name):,} {name}" for name in ("verified", "failed", "unknown"))
    checking = m.beside["checking"]
    return f"Of {m.n:,}: {said}." + (f" {checking:,} being checked." if checking else "")


def _open_ones(m: Measure) -> str:
    accepted = m.beside["accepted"]
    kept = f" Accepted as unknown: {accepted:,}." if accepted else ""
    return f"Closed: n = {m.n:,}. Open now: {m.beside['open']:,}.{kept}"


def _versions(m: Measure) -> str:
    none = m.beside["without effects"]
    return f"{m.count('whole'):,} of {_n(m)}." + (f" {none:,} more have no effect." if none else "")


_BESIDE: dict[int, Callable[[Measure], str]] = {
    1: _acknowledged,
    2: lambda m: f"{m.count('found'):,} found; {_n(m)} of runs took effect. Observed by our gates.",
    3: _shares_of,
    4: _keys,
    5: _came_to,
    6: _open_ones,
    7: _versions,
}


def met(measure: Measure) -> bool | None:
    """Whether the target is met; None while that can't be said."""
    if bad := _bad(measure):
        return False
    return None if not measure.enough or bad is None else True


def _bad(m: Measure) -> bool | None:
    """Whether something is against the target. Breaches count from the first one on."""
    match m.number:
        case 1 | 6:
            limit, p95 = TARGET_ACK_S if m.number == 1 else TARGET_UNKNOWN_S, m.value("p95")
            return p95 is not None and m.enough and p95 >= limit
        case 3:
            late = m.n - m.count("in 24 h") - m.beside["in 24 h"]
            return late > 0 or (None if m.beside["in 24 h"] else False)
        case 5:
            return m.count("verified") < m.n
        case 7:
            return m.count("whole") < m.n
        case number:
            return m.count("found" if number == 2 else "twice") > 0


MET = {True: "target met", False: "target not met", None: "target not judged"}

"""The report as PDF: what the template templates/report/report.typ shows, as plain JSON values.

The same read model as page and JSON. Long reports are bounded here, and say what they leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from dashboard import words

from .model import Claim, Listed, Report
from .sentences import LONG, effect_term
from .typesetting import typeset

MOST = 2_000  # rows of one table
LONGEST = 44  # signs without a space that fit; what is longer gets places at which it may break
BREAK = "\N{ZERO WIDTH SPACE}"
_LONG = re.compile(rf"\S{{{LONGEST},}}")
WORDS = {"drill": "DRILL", "note": "Note:", "facts": ["Fact", "As of this version"]}


def pdf(report: Report, missing: str = "") -> bytes:
    """A tagged PDF (PDF/UA-1) of a complete report: version or draft.

    `missing`: what a restore lost of the run, which an issued version can't know. Raises the errors of
    `typesetting`: NoTypst, Busy, TooSlow, Failed.
    """
    return typeset(data_of(report, missing), report.issued_at or report.as_of)


def data_of(report: Report, missing: str = "") -> dict[str, Any]:
    """What the template shows. Every text is already a sentence or a name; nothing is markup."""
    told = _Told(report)
    at = (report.issued_at or report.as_of).astimezone(UTC)
    data = {
        "lang": "en",
        "kind": "Shutdown report",
        "title": f"Shutdown report: {report.run.name}, {told.stand}",
        "about": f"Report of run {report.run.id} in {report.run.workspace}",
        "date": {"year": at.year, "month": at.month, "day": at.day},
        "run": {"name": report.run.name, "id": report.run.id},
        "stand": told.stand,
        "drill": report.run.drill,
        "word": report.word,
        "sentence": report.sentence,
        "stamp": report.stamp,
        "final": report.final and not report.draft,
        "missing": missing,
        "replaced": f"Version {report.newest} is newer." if report.replaced else "",
        "words": WORDS,
        "facts": list(told.facts()),
        "note": report.stop.note if report.stop and len(report.stop.note) > LONG else "",
        "changes": told.changes(),
        "sections": [told.section(one) for one in report.sections],
        **told.tables(),
        "foot": told.foot(),
        "end": list(told.end()),
    }
    fitted: dict[str, Any] = _fit(data)
    return fitted


def _fit(value: Any) -> Any:
    """Without a sign that can't be shown, and with places to break where there is no space for long."""
    if isinstance(value, str):
        return _LONG.sub(lambda found: _broken(found[0]), words.clean(value))
    if isinstance(value, dict):
        return {name: _fit(one) for name, one in value.items()}
    return [_fit(one) for one in value] if isinstance(value, list) else value


def _broken(word: str) -> str:
    step = LONGEST // 2
    return BREAK.join(word[at : at + step] for at in range(0, len(word), step))


class _Told:
    """The parts of one report in words, times in UTC with the day where it is another than the report's."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.day = report.as_of.astimezone(UTC).date()

    # moments and names -----------------------------------------------------------------------------

    def at(self, moment: datetime | None, exact: bool = False) -> str:
        if moment is None:
            return "Not yet"
        utc = moment.astimezone(UTC)
        text = utc.strftime("%H:%M:%S.%f")[:-3] if exact else utc.strftime("%H:%M:%S")
        return text if utc.date() == self.day else f"{utc.strftime('%-d %b %Y')} {text}"

    @staticmethod
    def full(moment: datetime) -> str:
        return moment.astimezone(UTC).strftime("%-d %b %Y, %H:%M:%S UTC")

    def who(self, actor: str) -> str:
        return words.clean(self.report.names.get(actor, actor))

    @property
    def stand(self) -> str:
        report = self.report
        if report.draft or report.issued_at is None:
            return f"draft, as of {self.full(report.as_of)}"
        replaces = f", replaces version {report.replaces}" if report.replaces else ""
        return f"version {report.version}, issued {self.full(report.issued_at)}{replaces}"

    # the head --------------------------------------------------------------------------------------

    def facts(self) -> Iterable[dict[str, str]]:
        report, run = self.report, self.report.run
        yield from self._stop() if report.stop else [_fact("Stop", "None was requested")]
        yield _fact("Began", self.at(run.admitted_at))
        yield _fact("Ended", self.at(run.ended_at))
        known = f"{report.known} of {report.of}" if report.of else "None was sent"
        yield _fact("Effects known", known, f"as of {self.full(report.as_of)}")
        if report.messages:
            yield _fact("Messages", report.messages)
        yield _fact("Workspace", run.workspace, f"session {run.session}" if run.session else "")
        yield _fact("Agent", run.agent or "Not named", run.runtime)

    def _stop(self) -> Iterable[dict[str, str]]:
        stop = self.report.stop
        assert stop is not None
        yield _fact("Stop", f"#{stop.number}, by {self.who(stop.actor)}", stop.pressed_says)
        replaced = f"replaced {stop.replaces}" if stop.replaces else ""
        yield _fact("Scope and mode", f"This {stop.scope}, {stop.mode}", replaced)
        reason = dict(words.REASONS).get(stop.reason, stop.reason)
        note = f"“{stop.note}”" if 0 < len(stop.note) <= LONG else ""
        yield _fact("Reason", reason or "None given", note)
        yield _fact("Versions", f"{_version(stop.version_before)} to {_version(stop.version_after)}")
        yield _fact("Recorded", self.at(stop.recorded_at, exact=True))
        yield _fact("Effective", self.at(stop.gate_at, exact=True))
        late = f"timed out {self.at(stop.timed_out_at)}" if stop.timed_out_at else ""
        yield _fact("Quiet", self.at(stop.quiet_at, exact=True), late)
        yield _fact("Closed", self.at(stop.closed_at, exact=True), stop.closed_because)

    # the answers -----------------------------------------------------------------------------------

    def changes(self) -> dict[str, Any] | None:
        changed = self.report.changes
        if changed is None:
            return None
        left = f"{changed.left_out} more changed; the JSON of both versions holds them."
        says = left if changed.left_out else ""
        says = says if changed.claims else "Nothing that this document shows: more evidence of the same."
        title = f"What changed since version {changed.since}"
        return {"title": title, "claims": [_claim(one) for one in changed.claims], "says": says}

    def section(self, section: Any) -> dict[str, Any]:
        left = f"{section.left_out} more stand in the manifest." if section.left_out else ""
        claims = [_claim(one) for one in section.claims]
        return {"number": str(section.number), "title": section.title, "claims": claims, "says": left}

    # the tables ------------------------------------------------------------------------------------

    def tables(self) -> dict[str, Any]:
        """Each with its letter, its title and its column heads."""
        report = self.report
        effects = _shown(report.manifest, [self._effect(row) for row in report.manifest.rows[:MOST]])
        repairs = _shown(report.repairs, [self._repair(row) for row in report.repairs.rows[:MOST]])
        workers = [{"name": row.name, "says": row.says} for row in report.workers.rows]
        late = [{"says": row.says, "line": row.line} for row in report.late.rows]
        lines = [self._line(row) for row in report.evidence[:MOST]]
        left = max(0, len(report.evidence) - MOST)
        cited = f"{left} more lines are cited; the JSON holds them." if left else ""
        cited = cited if lines else "No line is cited."
        return {
            "manifest": _part("A", "Manifest", "Effect, key|Settlement|Ground|Line", effects),
            "repairs": {"title": REPAIRS, "head": REPAIR_HEAD, **repairs},
            "flight": _part("B", "In flight when the stop took effect", "", self._flight()),
            "log": _part("C", "Boundary log", "Time, UTC|Boundary|Refused|Version|Line", self._log()),
            "new_work": {"says": report.new_work.says, "lines": report.new_work.lines},
            "workers": _part("D", WORKERS, "", _shown(report.workers, workers)),
            "turns": _shown(report.turns, [self._turn(row) for row in report.turns.rows]),
            "late": _shown(report.late, late),
            "evidence": _part("E", "Evidence lines cited", LINE_HEAD, {"rows": lines, "says": cited}),
            "measures": _part("F", MEASURES, "No.|Measure|Of this run", self._measures()),
            "method": _part("G", "Method and limits", "", {"rows": report.method}),
            "signatures": _part("H", "Signatures", "Who|Signed, UTC|Says|Line", self._signed()),
        }

    def _effect(self, row: Any) -> dict[str, Any]:
        marks = [name for name in ("late", "contradicted") if getattr(row, name)]
        ground = row.ground
        if row.next_check_at:
            until = f", until {self.at(row.check_until)}" if row.check_until else ""
            ground += f". Next check {self.at(row.next_check_at)}{until}"
        elif row.settlement == "UNKNOWN":
            ground += ". No further check"
        if row.job_state:
            ground += f". The job: {row.job_state}" + (f", as of {self.at(row.job_at)}" if row.job_at else "")
        return {
            "name": row.name,
            "sub": ", ".join(part for part in (row.target, row.amount) if part),
            "key": words.clean(row.key),
            "settlement": effect_term(row.settlement, self.report.status).word,
            "marks": ", ".join(marks),
            "ground": ground,
            "line": row.line,
        }

    def _repair(self, row: Any) -> dict[str, Any]:
        ahead = f" Next look-up {self.at(row.next_check_at)}." if row.next_check_at else ""
        people = words.listed([self.who(one) for one in row.approved_by]) or "nobody"
        needed = f" ({len(row.approved_by)} of {row.needed})" if row.needed else ""
        number = f", try {row.number}" if row.number > 1 else ""
        return {
            "name": f"{row.name}{number}, of {row.effect_name}",
            "key": words.clean(row.key),
            "stands": f"{row.stands}, halted" if row.halted else row.stands,
            "says": f"{row.says}{ahead}",
            "people": f"{people}{needed}",
            "line": row.line,
        }

    def _flight(self) -> dict[str, Any]:
        listed = self.report.in_flight
        rows = []
        for row in listed.rows:
            worker = f", worker {row.worker}" if row.worker else ""
            since = f", since {self.at(row.opened_at, exact=True)}{worker}"
            rows.append({"what": row.what, "since": since, "became": row.became, "lines": row.lines})
        return _shown(listed, rows)

    def _log(self) -> dict[str, Any]:
        return _shown(self.report.log, [self._refusal(row) for row in self.report.log.rows])

    def _refusal(self, row: Any) -> dict[str, Any]:
        worker = f", worker {row.worker}" if row.worker else ""
        times = f", {row.count} times" if row.count > 1 else ""
        why = "" if row.after_stop else f" ({row.why})"
        return {
            "at": self.at(row.at, exact=True),
            "boundary": row.boundary,
            "what": f"“{row.what}”{worker}{times}{why}",
            "versions": f"carried {_version(row.carried_version)}, current {_version(row.current_version)}",
            "line": row.line,
        }

    def _turn(self, row: Any) -> dict[str, str]:
        return {"what": row.what, "at": self.at(row.opened_at, exact=True), "says": row.says}

    def _line(self, row: Any) -> dict[str, Any]:
        digest = row.payload_digest[:16] or "–"
        told = {"seq": row.seq, "at": self.at(row.at, exact=True), "word": row.word}
        return {**told, "key": words.clean(row.effect_key), "digest": digest}

    def _measures(self) -> dict[str, Any]:
        rows = [{"no": str(row.number), "title": row.title, "says": row.says} for row in self.report.measures]
        return {"rows": rows, "says": "" if rows else "Not measured: this version is older than that."}

    def _signed(self) -> dict[str, Any]:
        rows = [self._sign(row) for row in self.report.signatures]
        draft = "A draft is not signed. A version is, once it is issued."
        says = draft if self.report.draft else "Nobody has signed this version."
        later = "Sign-offs stand beside the version: those of the moment at which this PDF was made."
        return {"rows": rows, "says": later if rows else says}

    def _sign(self, row: Any) -> dict[str, Any]:
        note = f"Note: “{row.note}”" if row.note else ""
        told = {"who": self.who(row.actor), "at": self.full(row.at), "says": f"“{row.says}”"}
        return {**told, "note": note, "line": row.line}

    # the foot --------------------------------------------------------------------------------------

    def foot(self) -> dict[str, str]:
        report = self.report
        what = f"Allstop report {report.id}, version {report.version}. Times in UTC"
        draft = f"Allstop, draft of {report.run.id}. Times in UTC"
        stamp = "A draft has no digest." if report.draft else f"sha256 {report.digest}"
        return {"what": draft if report.draft else what, "digest": stamp, "page": "page {n} of {of}"}

    def end(self) -> Iterable[dict[str, str]]:
        report = self.report
        if report.draft:
            yield {"says": f"Draft of {report.run.id}, up to line e-{report.upto_seq}.", "hex": ""}
            return
        says = f"Report {report.id}, version {report.version}, up to line e-{report.upto_seq}."
        yield {"says": f"{says} sha256 of the canonical JSON", "hex": report.digest}
        if report.seal:
            sealed = f"Evidence sealed to e-{report.seal.upto_seq}, head"
            yield {"says": sealed, "hex": report.seal.head}
        if report.statement:
            yield {"says": report.statement.says, "hex": report.statement.signature}


REPAIRS = "Compensations: new actions; the original effects stay what they were"
REPAIR_HEAD = ["Compensation, key", "Stands at", "Approved by", "Line"]
MEASURES = "The seven measures of this run"
WORKERS = "Workers, model turns and late reports"
LINE_HEAD = "Line|Time, UTC|Event|Payload sha256"


def _fact(name: str, value: str, sub: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "sub": sub}


def _version(number: int | None) -> str:
    return f"v{number}" if number else "–"


def _claim(claim: Claim) -> dict[str, Any]:
    return {"lead": claim.lead, "text": claim.text, "stress": claim.stress, "lines": claim.lines}


def _part(letter: str, title: str, head: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"letter": letter, "title": title, "head": head.split("|"), **body}


def _shown(listed: Listed, rows: Sequence[Any]) -> dict[str, Any]:
    """The rows, and what is written of those that are not here."""
    left = listed.total - len(rows)
    more = f"{len(rows)} of {listed.total} are set here. The JSON holds what this version lists."
    return {"rows": list(rows), "says": listed.says or (more if left > 0 else "")}

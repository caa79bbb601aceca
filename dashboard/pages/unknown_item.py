"""One item of the unknowns desk: what was sent, why nobody knows, all answers, and what may be done."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from django.urls import reverse

from dashboard import repair_words, words
from dashboard.pages import files
from dashboard.pages.stages import clock
from dashboard.pages.unknown_answers import Answer, Answers
from dashboard.pages.unknown_desk import taken_by
from dashboard.pages.unknown_means import means
from dashboard.pages.unknown_subject import Subject
from dashboard.unknown_words import GROUND, VERDICT, Choice, choices, items_in_words
from dashboard.words import Term
from effects import backing, unknowns
from effects.models import Attachment, Compensation, Inbound, Matter, Provider, Resolution, Verdict
from runs.access import Actor
from runs.models import StopRequest

INBOUND, REPAIRS, TOGETHER = 20, 5, 200
BECAME = {
    "settled": "it settled something",
    "recorded": "kept as evidence",
    "waiting": "it waits for its effect",
    "unread": "it could not be read",
    "expired": "nothing claimed it in time",
}
FORMS = {"reference": "Provider reference", "link": "Link", "quote": "Quote", "file": "File"}


@dataclass(frozen=True)
class Said:
    """One person's verdict. `state`: in force · waits for a second person · withdrawn · superseded."""

    resolution: Resolution
    verdict: str
    by: str
    second: str
    state: str
    items: str
    attachments: list[Attached]

    @property
    def is_old(self) -> bool:
        return self.state.startswith(("withdrawn", "superseded"))

    @property
    def waits(self) -> bool:
        return self.resolution.in_force_at is None and self.resolution.withdrawn_at is None


@dataclass(frozen=True)
class Attached:
    """One piece of evidence that a person attached. `href`: where it can be read; else its text is all."""

    row: Attachment
    form: str
    what: str
    by: str
    href: str = ""

    @property
    def is_file(self) -> bool:
        return self.row.form == "file"


class Item:
    """The detail of one subject for one person, as of now: a fixed number of queries."""

    def __init__(self, subject: Subject, actor: Actor, may: frozenset[str]) -> None:
        self.s, self.actor, self.may = subject, actor, may
        self.id, self.run, self.now = subject.u.id, subject.run, subject.now
        self.me = actor.user.pk if actor.user else 0

    @property
    def title(self) -> str:
        return f"{self.s.term.word} · {self.s.title}"

    @property
    def summary(self) -> str:
        """One line for those who listen: said when it changes."""
        waits = ", a verdict waits for a second person" if self.waiting else ""
        return f"{self.s.term.word}, {self.s.tries}, {self.taken_by}{waits}"

    @property
    def anchor(self) -> str:
        return "deliveries" if self.s.matter == Matter.DELIVERY else self.id

    @property
    def may_resolve(self) -> bool:
        return "resolve" in self.may

    @property
    def may_correct(self) -> bool:
        return self.may_resolve and self.s.is_settled and self.s.matter != Matter.COMPENSATION

    @cached_property
    def owns_run(self) -> bool:
        """Whether a text of this person's own is no evidence here: it is their own run."""
        return backing.is_own(self.run, self.actor)

    @property
    def taken_by(self) -> str:
        return taken_by(self.s.u.assignee, self.me)

    @property
    def is_mine(self) -> bool:
        return self.s.u.assignee is not None and self.s.u.assignee.pk == self.me

    # what there is ----------------------------------------------------------------------------------

    @cached_property
    def answers(self) -> Answers:
        return Answers(self.run.pk, self.s.matter, self.s.u.key)

    @cached_property
    def stop(self) -> StopRequest | None:
        """The newest stop of its run."""
        return StopRequest.objects.filter(run=self.run, scope="run").order_by("-number").first()

    @property
    def stop_says(self) -> str:
        stop = self.stop
        if stop is None:
            return ""
        at = clock(stop.recorded_at)
        return f"stop #{stop.number} ({stop.mode}) at {at} UTC"

    @property
    def ground(self) -> str:
        return GROUND.get(self.s.u.ground, "")

    @property
    def counted(self) -> str:
        """How many objects a look-up saw under its key, where one could count."""
        number = getattr(self.s.row, "counted", None)
        if number is None:
            return ""
        return f"{words.count(number, 'object')} under this key"

    @cached_property
    def attachments(self) -> list[Attached]:
        return [attached(row) for row in unknowns.attachments(self.id)]

    @cached_property
    def verdicts(self) -> list[Said]:
        """Newest first; what a later one superseded stays."""
        found = unknowns.resolutions(self.id)
        kept = self._cited(found)
        over = {one.supersedes_id: one.number for one in found if one.supersedes_id and one.in_force_at}
        return [said(one, over.get(one.pk), kept) for one in found]

    def _cited(self, found: list[Resolution]) -> dict[str, Attached]:
        """What the verdicts cite, by id: also an export that several subjects share."""
        kept = {one.row.pk: one for one in self.attachments}
        shared = {pk for one in found for pk in one.attachments} - set(kept)
        rows = Attachment.objects.filter(pk__in=shared).select_related("person").defer("content")
        return kept | {row.pk: attached(row) for row in (rows if shared else ())}

    @property
    def newest(self) -> int:
        """The number of the newest verdict that is shown; 0: none."""
        return self.verdicts[0].resolution.number if self.verdicts else 0

    @property
    def waiting(self) -> Said | None:
        """The verdict that a second person has to agree to."""
        return next((one for one in self.verdicts if one.waits), None)

    @property
    def is_my_wait(self) -> bool:
        return self.waiting is not None and self.waiting.resolution.person_id == self.me

    @property
    def may_agree(self) -> bool:
        return "approve" in self.may and not self.is_my_wait and not self.owns_run

    @property
    def agree_says(self) -> str:
        """The button of the second person: Agree: accept as unknown."""
        if self.waiting is None:
            return ""
        verdict = self.waiting.resolution.verdict
        return f"Agree: {'accept as unknown' if verdict == Verdict.CANNOT_TELL else self.waiting.verdict}"

    @cached_property
    def together(self) -> list[str]:
        """The verdicts of the same person on the same export that wait as this one does."""
        waiting = self.waiting
        if waiting is None or not waiting.resolution.attachments or not self.may_agree:
            return []
        mine = waiting.resolution
        rows = Resolution.objects.filter(workspace_id=self.run.workspace_id, person_id=mine.person_id)
        rows = rows.filter(in_force_at__isnull=True, withdrawn_at__isnull=True).order_by("-pk")
        found = rows.values_list("pk", "verdict", "attachments")[:TOGETHER]
        alike = (mine.verdict, mine.attachments)
        return [pk for pk, verdict, cited in found if (verdict, cited) == alike]

    @cached_property
    def inbound(self) -> list[tuple[Inbound, str]]:
        """Webhooks of its provider account that were about it, newest first."""
        rows = Inbound.objects.filter(subject_id=self.id).select_related("account").defer("body")
        return [(one, BECAME.get(one.became, one.became)) for one in rows.order_by("-pk")[:INBOUND]]

    @cached_property
    def files(self) -> files.Change | None:
        """What the disk says now of an effect that writes files of the workspace."""
        kind = self.s.kind
        if self.s.matter != Matter.EFFECT or kind is None or kind.provider != Provider.WORKSPACE:
            return None
        return files.change_of(self.s.row, self.run)

    @cached_property
    def compensations(self) -> list[tuple[Compensation, Term]]:
        """Those of an effect, newest first."""
        if self.s.matter != Matter.EFFECT:
            return []
        rows = Compensation.objects.filter(effect=self.id).select_related("permit").defer("body")
        found = rows.order_by("-number")[:REPAIRS]
        return [(one, repair_words.term_of(one, one.permit.state if one.permit else "")) for one in found]

    @property
    def sides(self) -> list[Answer]:
        """Of a contradiction, both sides: what it was settled by, and what was said later."""
        rows = self.answers.rows if self.s.contradicted else []
        turned = next((row for row in reversed(rows) if row.says.startswith("Contradicted")), None)
        if turned is None:
            return []
        before = [row for row in rows if row.seq < turned.seq]
        settled = [row for row in before if row.settles][-1:]
        later = [row for row in before[-1:] if row not in settled]
        return [*settled, *later, turned]

    @cached_property
    def choices(self) -> list[Choice]:
        """The verdicts, and what each would mean."""
        return choices(self.s.matter, self.s.thing, means(self.s), correct=self.s.is_settled)


def attached(row: Attachment) -> Attached:
    """A link leads where it says, and only over the web; a file is a download from here."""
    by, form = words.clean(row.person), FORMS.get(row.form, row.form)
    if row.removed_at is not None:
        gone = f"removed on {row.removed_at:%Y-%m-%d} under {row.removed_under}"
        return Attached(row, form, words.clean(gone), by)
    if row.form == "file":
        return Attached(row, form, words.brief(row.file_name, 120), by, reverse("attachment", args=[row.pk]))
    address = row.text.strip()
    web = row.form == "link" and address.lower().startswith(("https://", "http://"))
    return Attached(row, form, words.brief(row.text, 300), by, address if web else "")


def said(one: Resolution, superseded_by: int | None, kept: dict[str, Attached]) -> Said:
    """One verdict in words."""
    return Said(
        resolution=one,
        verdict=VERDICT[Verdict(one.verdict)],
        by=words.brief(one.person, 60),
        second=words.brief(one.second, 60) if one.second else "",
        state=_state(one, superseded_by),
        items=items_in_words(one.items),
        attachments=[kept[pk] for pk in one.attachments if pk in kept],
    )


def _state(one: Resolution, superseded_by: int | None) -> str:
    if one.withdrawn_at:
        return f"withdrawn{f': {words.brief(one.withdrawn_why, 120)}' if one.withdrawn_why else ''}"
    if superseded_by:
        return f"superseded by verdict {superseded_by}"
    return "in force" if one.in_force_at else "waits for a second person"

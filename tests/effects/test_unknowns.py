"""What is unknown: who is asked at once and who can't be, what is counted, assigned, cleaned, told once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from effects import attaching, care, lookup, providers, reconcile, repair, resolve, unknowns
from effects.models import Attachment, Care, Effect
from effects.reconcile import Answer
from effects.resolve import Checked, NotResolved
from effects.unknowns import Wanted
from runs.access import NotAllowed, NotFound
from runs.models import Evidence
from tests.effects.unknowns import MATTERS, again, an_unknown, now, recorded, settled
from tests.worlds import World, a_kind, a_run, in_seconds, kinds_of

pytestmark = pytest.mark.django_db

LOOKUP = {"url": "https://bank.example/{key}"}


class Provider:
    """Answers each look-up as it is told to, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Answer | Exception | None = None) -> None:
        self.answer: Answer | Exception = answer or Answer("present", provider_ref="ch_1")
        self.asked = 0
        self.meanwhile: Any = lambda: None
        monkeypatch.setattr(providers, "look_up", self._look_up)
        for module in ("asking", "lookup"):  # they would close the one connection of a test
            monkeypatch.setattr(f"effects.{module}.close_old_connections", lambda: None)
        monkeypatch.setattr(repair, "ask_provider", self._look_up)

    def _look_up(self, _: Any, *__: Any) -> Answer:
        self.asked += 1
        self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    return Provider(monkeypatch)


def askable(world: World, matter: str = "effect", **fields: Any) -> Any:
    lookup_of = fields.pop("lookup", LOOKUP)
    name = f"bank.{len(Effect.objects.all())}"
    kind = a_kind(world.workspace, name, provider="http", lookup=lookup_of, updated_at=in_seconds(-10_000))
    return an_unknown(world, matter, kind=kind, **fields)


def busy(row: Any) -> None:
    """Somebody asks about it at this moment."""
    type(row).objects.filter(pk=row.pk).update(turn_until=in_seconds(20), next_check_at=in_seconds(20))


def asked(row: Any, by: Any) -> str:
    """The answer, or why there was none."""
    told = resolve.check_now(actor=by, subject_id=row.pk)
    return told.reason if isinstance(told, NotResolved) else f"{told.answer}: {told.state}"


# --- Asking at once -------------------------------------------------------------------------------------

NOW = {
    "effect": {
        "present": "CONFIRMED",
        "absent": "NOT_APPLIED",
        "partial": "PARTIAL",
        "can't tell": "UNKNOWN",
    },
    "compensation": {"present": "VERIFIED", "absent": "FAILED", "partial": "FAILED", "can't tell": "UNKNOWN"},
}


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("answer", NOW["effect"])
@pytest.mark.parametrize("matter", NOW)
def test_who_asks_at_once_hears_what_was_said_and_what_it_settles(
    world: World, provider: Provider, matter: str, answer: str
) -> None:
    row = askable(world, matter, next_check_at=in_seconds(3000), check_until=in_seconds(9000))
    provider.answer = Answer(answer, detail="seen", items=["one"] if answer == "partial" else None)
    told = resolve.check_now(actor=world.alice, subject_id=row.pk)
    assert isinstance(told, Checked)
    assert (told.answer, told.detail, told.state) == (answer, "seen", NOW[matter][answer])
    assert (now(row), provider.asked) == (told.state, 1)
    line = Evidence.objects.get(stream=row.run_id, kind=f"{matter}.looked_up")
    assert (line.actor, line.ground) == (world.alice.id, "looked up")
    if answer == "can't tell":
        assert again(row).next_check_at is not None, "its schedule goes on"
        assert not unknowns.find(row.pk, world.alice).asking


@pytest.mark.invariant("I9")
def test_a_look_up_that_breaks_is_told_as_one_and_settles_nothing(world: World, provider: Provider) -> None:
    row = askable(world)
    provider.answer = RuntimeError("no such host")
    assert asked(row, world.alice) == "can't tell: UNKNOWN"


def test_after_the_schedule_has_ended_one_may_still_ask(world: World, provider: Provider) -> None:
    row = askable(world, next_check_at=None, check_until=in_seconds(-100), checks=9)
    assert reconcile.due() == []
    assert asked(row, world.agent) == "present: CONFIRMED"


@pytest.mark.parametrize("matter", NOW)
def test_while_somebody_asks_nobody_else_does(world: World, provider: Provider, matter: str) -> None:
    row = askable(world, matter)
    busy(row)
    assert unknowns.find(row.pk, world.alice).asking
    before = again(row).turn_until
    assert (asked(row, world.alice), provider.asked) == ("asking", 0)
    assert resolve.check_many(actor=world.alice, subject_ids=[row.pk]) == {row.pk: "asking"}
    assert again(row).turn_until == before
    type(row).objects.filter(pk=row.pk).update(turn_until=in_seconds(-1))  # who asked is gone
    assert asked(row, world.alice).startswith("present")


@pytest.mark.parametrize("matter", NOW)
def test_a_second_question_meets_the_first_one(world: World, provider: Provider, matter: str) -> None:
    row, seconds = askable(world, matter), list[str]()
    provider.meanwhile = lambda: seconds.append(asked(row, world.bob)) if provider.asked == 1 else None
    assert asked(row, world.alice).startswith("present")
    assert (seconds, provider.asked) == (["asking"], 1)


# What it is → why nobody can be asked about it.
NOBODY = {
    "no kind": "no_kind",
    "no look-up": "no_look_up",
    "its agent asks": "polled",
    "abandoned": "abandoned",
    "a message": "a_message",
    "known": "settled",
}


def of_nobody(world: World, what: str) -> Any:
    made = {
        "no kind": lambda: an_unknown(world),
        "no look-up": lambda: askable(world, lookup={}),
        "its agent asks": lambda: askable(world, lookup={"poll": True}),
        "abandoned": lambda: askable(world, run=a_run("ABANDONED", world.workspace)),
        "a message": lambda: an_unknown(world, "delivery"),
        "known": lambda: settled(world, "CONFIRMED", "looked up"),
    }
    return made[what]()


@pytest.mark.parametrize("what", NOBODY)
def test_where_nobody_can_be_asked_it_says_why(world: World, provider: Provider, what: str) -> None:
    row = of_nobody(world, what)
    assert asked(row, world.alice) == NOBODY[what]
    assert resolve.check_many(actor=world.alice, subject_ids=[row.pk]) == {row.pk: NOBODY[what]}
    assert provider.asked == 0
    assert "unknown.asked" not in kinds_of(row.run)
    refused = NotResolved(NOBODY[what])
    assert refused.sentence.endswith(".")


def test_who_may_not_ask(world: World, provider: Provider) -> None:
    row = askable(world)
    for actor, error in (
        (world.dana, NotAllowed),
        (world.mallory, NotFound),
        (world.foreign_agent, NotFound),
    ):
        with pytest.raises(error):
            resolve.check_now(actor=actor, subject_id=row.pk)
    answers = {
        who: resolve.check_many(actor=actor, subject_ids=[row.pk])[row.pk]
        for who, actor in {"dana": world.dana, "mallory": world.mallory, "agent": world.agent}.items()
    }
    assert answers == {"dana": "not_allowed", "mallory": "not_found", "agent": ""}
    assert provider.asked == 0


def test_many_are_asked_soon_and_each_says_who_wanted_it(
    world: World, provider: Provider, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, message = [askable(world) for _ in range(2)], an_unknown(world, "delivery")
    mending, foreign = askable(world, "compensation"), an_unknown(World())
    woken: list[tuple[str, str]] = []
    monkeypatch.setattr("runs.wake.run_soon", lambda task, pk: woken.append((task, pk)))
    wanted = [rows[0].pk, rows[1].pk, rows[0].pk, message.pk, mending.pk, foreign.pk, "eff_none"]
    with django_capture_on_commit_callbacks(execute=True):
        told = resolve.check_many(actor=world.alice, subject_ids=wanted)
    assert list(told.values()) == ["", "", "a_message", "", "not_found", "not_found"]
    assert woken == [("effects.tasks.check", row.pk) for row in rows]
    assert {line.actor for line in Evidence.objects.filter(kind="unknown.asked")} == {world.alice.id}
    assert sorted(reconcile.due()) == sorted(row.pk for row in rows)
    assert [lookup.check_effect(row.pk) for row in rows] == ["CONFIRMED", "CONFIRMED"]
    assert lookup.check_effect(rows[0].pk) is None, "asked once"


# --- Lists ----------------------------------------------------------------------------------------------

# An amount as people write it → the figure by which it is ordered.
FIGURES = {
    "€ 1.200,50": 1200.5,
    "$1,200.50": 1200.5,
    "1'200.50 CHF": 1200.5,
    "1’200.50 CHF": 1200.5,
    "1 200,50 €": 1200.5,
    "1\u202f200,50 €": 1200.5,
    "1\u00a0200 €": 1200,
    "1,200": 1200,
    "1.200.000": 1_200_000,
    "12.5 kg": 12.5,
    "0.125 BTC": 0.125,
    "1234.567": 1234.567,
    "7 seats": 7,
    "about 40.": 40,
    "": 0,
    "many": 0,
    "-": 0,
}


@pytest.mark.parametrize("amount", FIGURES)
def test_the_figure_of_an_amount(amount: str) -> None:
    assert unknowns.figure_of(amount) == FIGURES[amount]


def test_the_largest_amount_first_then_what_falls_due_first(world: World) -> None:
    large, small = an_unknown(world, amount="€1,200.00"), an_unknown(world, amount="€900.00")
    later = an_unknown(world)
    first = an_unknown(world, "delivery", unknown_since=in_seconds(-9000))
    mending = an_unknown(world, "compensation", amount="€1.000,00")
    an_unknown(World(), amount="€9,999.00")
    settled(world, "CONFIRMED", "looked up", amount="€9,999.00")
    ranked = [one.id for one in unknowns.by_impact(world.workspace.pk)]
    assert ranked == [row.pk for row in (large, mending, small, first, later)]
    assert [one.id for one in unknowns.by_impact(world.workspace.pk, limit=2, skip=1)] == ranked[1:3]
    only = unknowns.by_impact(world.workspace.pk, Wanted(matter="delivery"))
    assert [one.id for one in only] == [first.pk]


def test_what_became_known_within_a_day_is_told_the_newest_first(world: World) -> None:
    rows = {state: settled(world, state, "looked up") for state in ("CONFIRMED", "NOT_APPLIED", "PARTIAL")}
    message = settled(world, "HANDED_OVER", "decided", "delivery")
    mended = settled(world, "VERIFIED", "looked up", "compensation")
    accepted = settled(world, "ACCEPTED_UNKNOWN", "decided")
    times = {rows["CONFIRMED"]: -25 * 3600, rows["NOT_APPLIED"]: -5, rows["PARTIAL"]: -30, message: -20}
    for row, at in {**times, mended: -10, accepted: -15}.items():
        type(row).objects.filter(pk=row.pk).update(settled_at=in_seconds(at))
    known_at_once = settled(world, "CONFIRMED", "reported")
    Effect.objects.filter(pk=known_at_once.pk).update(unknown_since=None)
    settled(World(), "CONFIRMED", "looked up")
    an_unknown(world)
    expected = [rows["NOT_APPLIED"].pk, mended.pk, accepted.pk, message.pk, rows["PARTIAL"].pk]
    assert [one.id for one in unknowns.just_resolved(world.workspace.pk)] == expected
    assert [one.id for one in unknowns.just_resolved(world.workspace.pk, limit=2)] == expected[:2]
    longer = unknowns.just_resolved(world.workspace.pk, hours=26)
    assert [one.id for one in longer] == [*expected, rows["CONFIRMED"].pk]
    last = unknowns.last_resolved(world.workspace.pk)
    assert last is not None
    assert (last.id, last.is_open) == (expected[0], False)
    assert unknowns.last_resolved(world.elsewhere.pk) is None


# --- Who looks after it ---------------------------------------------------------------------------------


def assigned(rows: list[Any], by: Any, person: Any) -> list[str]:
    person_id = person.user.pk if person is not None else None
    ids = [row.pk for row in rows]
    return list(resolve.assign_many(actor=by, subject_ids=ids, person_id=person_id).values())


@pytest.mark.parametrize("matter", MATTERS)
def test_one_is_taken_by_one_person_and_given_back_by_them(world: World, matter: str) -> None:
    row = an_unknown(world, matter)
    for _ in range(2):  # again changes nothing
        taken = resolve.take(actor=world.alice, subject_id=row.pk)
        assert isinstance(taken, unknowns.Unknown)
        assert taken.assignee == world.alice.user
    for verb, why in ((resolve.take, "taken"), (resolve.give_back, "not_taken")):
        refused = verb(actor=world.bob, subject_id=row.pk)
        assert isinstance(refused, NotResolved)
        assert refused.reason == why
    given = resolve.give_back(actor=world.alice, subject_id=row.pk)
    assert isinstance(given, unknowns.Unknown)
    assert (given.assignee, given.taken_at) == (None, None)
    assert kinds_of(row.run) == ["unknown.taken", "unknown.given_back"]


def test_several_are_assigned_to_whoever_may_resolve_them(world: World) -> None:
    rows, foreign = [an_unknown(world) for _ in range(2)], an_unknown(World())
    assert assigned([*rows, foreign], world.alice, world.bob) == ["", "", "not_found"]
    assert assigned(rows, world.alice, world.bob) == ["", ""]  # again changes nothing
    assert list(Care.objects.values_list("person", flat=True)) == [world.bob.user.pk] * 2  # type: ignore[union-attr]
    assert {tuple(kinds_of(row.run)) for row in rows} == {("unknown.taken",)}
    assert assigned(rows, world.alice, world.dana) == ["no_member"] * 2, "who reads can't resolve"
    assert assigned(rows, world.alice, world.mallory) == ["no_member"] * 2
    assert assigned(rows, world.dana, world.bob) == ["not_allowed"] * 2
    assert assigned(rows, world.agent, world.bob) == ["not_allowed"] * 2
    assert assigned(rows[:1], world.carol, None) == [""]
    mine = Wanted(assignee=world.bob.user.pk)  # type: ignore[union-attr]
    assert [one.id for one in unknowns.open_in(world.workspace.pk, mine)[0]] == [rows[1].pk]
    assert [one.id for one in unknowns.open_in(world.workspace.pk, Wanted(assignee=0))[0]] == [rows[0].pk]


# --- Files ----------------------------------------------------------------------------------------------

NAMES = {
    "export.csv": "export.csv",
    "../../etc/passwd": "passwd",
    "C:\\Users\\Ada\\bank (1).pdf": "bank (1).pdf",
    'a"b\r\nX-Evil: 1.txt': "a_bX-Evil_ 1.txt",
    "<script>.html": "_script_.html",
    "invoice\u202efdp.exe": "invoicefdp.exe",
    "\u200b": "file",
    "...": "file",
    "": "file",
    "dir/": "file",
    "Ausz\u0075\u0308ge.csv": "Auszüge.csv",
    "a" * 300 + ".csv": "a" * 196 + ".csv",
}
KEPT_TYPES = {
    "text/csv; charset=utf-8": "text/csv",
    "IMAGE/PNG": "image/png",
    "application/pdf": "application/pdf",
    "text/html": "application/octet-stream",
    "image/svg+xml": "application/octet-stream",
    "text/plain\r\nX: 1": "application/octet-stream",
    "application/javascript": "application/octet-stream",
    "": "application/octet-stream",
}


def test_names_and_types_of_files_are_cleaned_before_they_are_kept(world: World) -> None:
    for name, kept in NAMES.items():
        assert attaching.clean_name(name) == kept
    for given, kept in KEPT_TYPES.items():
        assert attaching.clean_type(given) == kept
    row = an_unknown(world)
    made = resolve.attach(
        actor=world.alice,
        subject_id=row.pk,
        form="file",
        file_name="../<b>.html",
        content_type="text/html",
        content=b"<script>",
    )
    assert isinstance(made, Attachment)
    made = Attachment.objects.get(pk=made.pk)
    assert (made.file_name, made.content_type) == ("_b_.html", "application/octet-stream")
    assert bytes(made.content) == b"<script>"


def test_a_file_is_kept_up_to_its_size_and_fifty_of_them(world: World) -> None:
    row = an_unknown(world)

    def put(size: int) -> str:
        given = {"form": "file", "file_name": "x", "content": b"x" * size}
        made = resolve.attach(actor=world.alice, subject_id=row.pk, **given)  # type: ignore[arg-type]
        return made.reason if isinstance(made, NotResolved) else "kept"

    assert [put(size) for size in (0, resolve.FILE_MAX, resolve.FILE_MAX + 1)] == [
        "evidence",
        "kept",
        "too_big",
    ]
    [one] = Attachment.objects.all()
    names = ("workspace_id", "run_id", "matter", "subject_id", "form", "person_id", "digest")
    more = {name: getattr(one, name) for name in names}
    Attachment.objects.bulk_create(Attachment(**more, content=b"x") for _ in range(attaching.MOST - 1))
    assert put(1) == "too_many"


# --- Overdue --------------------------------------------------------------------------------------------


def told_of(row: Any) -> int:
    return kinds_of(row.run).count("unknown.overdue")


def test_what_is_overdue_is_told_once_each_time_that_it_became_unknown(world: World) -> None:
    rows = [an_unknown(world, matter, unknown_since=in_seconds(-5 * 3600)) for matter in MATTERS]
    kind = a_kind(world.workspace, "bank.fast", due_after=timedelta(minutes=5))
    fast = an_unknown(world, kind=kind, unknown_since=in_seconds(-600))
    soon = an_unknown(world)
    for _ in range(2):
        for pk in unknowns.overdue():
            assert care.tell_overdue(pk)
    assert [told_of(row) for row in (*rows, fast, soon)] == [1, 1, 1, 1, 0]
    assert unknowns.overdue() == []
    assert not care.tell_overdue(rows[0].pk)
    assert not care.tell_overdue(soon.pk)
    recorded(rows[0], world.alice, "happened")
    assert not care.tell_overdue(rows[0].pk), "known by now"
    recorded(soon, world.alice, "happened")
    # It is in doubt again, and past its due time again.
    Care.objects.filter(pk=fast.pk).update(overdue_told_at=in_seconds(-700))
    assert unknowns.overdue() == [fast.pk]
    assert care.tell_overdue(fast.pk)
    assert told_of(fast) == 2


def fresh_kind(kind: Any) -> Any:
    return type(kind).objects.get(pk=kind.pk)


def test_nobody_is_told_of_drills_and_of_what_was_given_up(world: World) -> None:
    long: dict[str, Any] = {"unknown_since": in_seconds(-5 * 3600)}
    an_unknown(world, run=a_run("UNKNOWN", world.workspace, drill=True), **long)
    an_unknown(world, run=a_run("ABANDONED", world.workspace), **long)
    real = an_unknown(world, **long)
    assert unknowns.overdue() == [real.pk], "and it is told of the third"
    assert care.tell_overdue(real.pk)
    assert (told_of(real), unknowns.overdue()) == (1, [])

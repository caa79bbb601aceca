"""Jobs: accepted is a settlement, how far they are is a fact of its own that holds no run open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import close, ends, executor, intents, jobs, lookup, outbound, providers, reconcile, settle
from effects.kinds import BadKind, NewKind, check
from effects.models import Effect, Settlement
from effects.providers import http
from effects.reconcile import ABSENT, PRESENT, Answer
from runs.models import Evidence, Run, RunStatus
from tests.effects.job_site import RULES, JobSite, job_site
from tests.worlds import World, a_kind, a_permit, an_effect, fresh, in_seconds, intention, kinds_of

X = "https://x.example"
COLD: dict[str, Any] = {"job_at": None, "next_check_at": None}


@pytest.fixture
def site(settings: Settings) -> Iterator[JobSite]:
    with job_site() as site:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [site.url]
        yield site


@pytest.fixture
def world(db: None) -> World:
    return World()


def accepted(world: World, site: JobSite, **fields: Any) -> Effect:
    """A job that the provider accepted, due to be asked about."""
    kind, run = site.kind(world.workspace), world.run()
    site.jobs["render:1"] = {"id": "job-1", "key": "render:1", "status": "running"}
    step = world.claimed(run, "render", op_class="external_job")
    given: dict[str, Any] = {"job_state": "accepted", "provider_ref": "job-1", "settled_at": in_seconds(-3)}
    given |= {"next_check_at": in_seconds(-1), "check_until": in_seconds(600), **fields}
    return an_effect(step, Settlement.CONFIRMED, key="render:1", kind=kind, **given)


def ask(effect: Effect) -> str | None:
    """As lookup.ask_job() does, on the connection that this test keeps open."""
    Effect.objects.filter(pk=effect.pk, next_check_at__isnull=False).update(next_check_at=in_seconds(-1))
    due = jobs.take_turn(effect.pk)
    if due is None:
        return None
    heard = providers.ask_job(due)
    return jobs.apply(due.pk, heard.state, heard.detail)


def job_lines(effect: Effect) -> list[str]:
    rows = Evidence.objects.filter(stream=effect.run_id, kind__startswith="job.").order_by("seq")
    return list(rows.values_list("kind", flat=True))


# --- What a provider's word means -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "state"),
    [
        *[("queued", "accepted"), ("RUNNING", "running"), ("done", "completed"), ("cancelled", "failed")],
        *[("resting", "unknown"), (7, "unknown"), (None, ""), ("", ""), ({"a": 1}, ""), ([], "")],
    ],
)
def test_a_word_means_what_the_kind_lists_and_an_unlisted_one_is_unknown(word: Any, state: str) -> None:
    assert jobs.state_in(word, RULES) == state


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"op_class": "external_write"}, "class"),
        ({"send": {}}, "send"),
        (
            {"send": {"url": f"{X}/jobs", "cancel": {"url": f"{X}/end"}}},
            "send.cancel.url",
        ),
        ({"lookup": {"url": "https://x.example/{key}", "job": {"running": ["r"]}}}, "lookup.job.path"),
        ({"lookup": {"url": "https://x.example/{ref}"}}, "lookup.url"),
        ({"reversible": "everything"}, "reversible"),
    ],
)
def test_a_kind_of_jobs_says_where_and_by_which_number_it_is_asked(
    changes: dict[str, Any], field: str
) -> None:
    good = NewKind(
        op_class="external_job",
        provider="job",
        send={
            "url": "https://x.example/jobs",
            "cancel": {"url": "https://x.example/jobs/{ref}", "method": "DELETE"},
        },
        lookup={
            "url": "https://x.example/jobs?key={key}",
            "job": {**RULES, "url": "https://x.example/jobs/{ref}"},
        },
    )
    check(good)
    with pytest.raises(BadKind) as error:
        check(NewKind(**{**vars(good), **changes}))
    assert error.value.field == field


# --- Asked on a schedule of its own ---------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_job_is_sent_accepted_and_asked_about_until_it_is_over(world: World, site: JobSite) -> None:
    site.kind(world.workspace)
    run = world.run()
    effect = intents.declare(world.ask(run, step_key="r"), intention("render:1", kind="render.video"))
    assert isinstance(effect, Effect)
    assert executor.execute(effect.pk) == "applied"
    effect = fresh(effect)
    assert (effect.settlement, effect.job_state, effect.provider_ref) == ("CONFIRMED", "accepted", "job-1")
    assert effect.next_check_at is not None
    assert effect.job_at is not None
    ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    assert fresh(run).status == RunStatus.COMPLETED  # it runs on at the provider, and holds nothing open
    for word, state in (("running", "running"), ("running", "running"), ("done", "completed")):
        site.says(word)
        Effect.objects.filter(pk=effect.pk).update(next_check_at=in_seconds(-1))
        assert jobs.due() == [effect.pk]
        assert lookup.ask_job(effect.pk) == state
    assert job_lines(effect) == ["job.running", "job.completed"]  # one for each change
    assert (fresh(effect).next_check_at, jobs.due(), fresh(run).status) == (None, [], "COMPLETED")
    assert close.outcome_of(fresh(run)) == close.COMPLETED


def test_what_could_not_be_told_leaves_what_was_seen_last_as_of_then(world: World, site: JobSite) -> None:
    effect = accepted(world, site, job_at=in_seconds(-60))
    site.jobs["render:1"]["key"] = "somebody-elses"
    assert ask(effect) == "accepted"
    after = fresh(effect)
    assert after.job_at == effect.job_at
    assert after.next_check_at is not None
    assert not job_lines(effect)
    site.jobs.clear()  # a provider that does not know it any more is not one that can't be reached
    assert ask(effect) == "unknown"
    assert job_lines(effect) == ["job.unknown"]
    assert fresh(effect).settlement == "CONFIRMED"


def test_the_questions_end_when_they_were_said_to_and_what_was_seen_last_stays(
    world: World, site: JobSite
) -> None:
    effect = accepted(world, site, check_until=in_seconds(1))
    assert ask(effect) == "running"
    assert (fresh(effect).next_check_at, fresh(effect).job_state) == (None, "running")
    assert job_lines(effect) == ["job.running", "job.questions_ended"]
    assert ask(effect) is None
    assert len(site.asked) == 1


def test_nobody_asks_for_an_abandoned_run_and_what_comes_by_itself_counts(
    world: World, site: JobSite
) -> None:
    effect = accepted(world, site)
    world.stop(effect.run, mode="abandon")
    assert (jobs.due(), fresh(effect).next_check_at) == ([], None)
    assert jobs.apply(effect.pk, "completed") == "completed"
    assert fresh(effect).next_check_at is None
    assert job_lines(effect) == ["job.completed"]


def test_a_job_that_is_over_runs_again_for_no_word_that_comes_late(world: World, site: JobSite) -> None:
    effect = accepted(world, site)
    for word in ("completed", "running", "accepted", "unknown"):
        assert jobs.apply(effect.pk, word) == "completed"
    assert job_lines(effect) == ["job.completed"]
    assert jobs.apply(effect.pk, "failed") == "failed"  # its provider's own later word


def test_the_look_up_of_an_unknown_job_says_how_far_it_is_too(world: World, site: JobSite) -> None:
    effect = accepted(world, site, job_state="", **COLD)
    settle.contradict(effect, "a test")
    seen = providers.look_up(fresh(effect))
    assert (seen.answer, seen.job, seen.provider_ref) == (PRESENT, "running", "job-1")
    assert reconcile.apply_answer(effect.pk, seen) == "CONFIRMED"
    assert (fresh(effect).job_state, job_lines(effect)) == ("running", ["job.running"])
    assert fresh(effect).next_check_at is not None


def test_an_effect_of_another_class_has_no_job(world: World) -> None:
    run = world.run()
    kind = a_kind(world.workspace, lookup={"url": "https://x.example/{key}", "job": RULES})
    effect = an_effect(world.claimed(run), "CONFIRMED", kind=kind)
    assert jobs.heard(effect, "running", "system") == []
    assert jobs.apply(effect.pk, "running") == ""


# --- A key that is barred -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fence", "body", "fenced"),
    [
        (None, b"{}", False),
        (True, b"{}", True),
        ({"path": "fenced"}, b'{"fenced": true}', True),
        ({"path": "fenced"}, b'{"fenced": "true"}', False),
        ({"path": "fenced"}, b"{}", False),
        ({"path": "fenced"}, b"gone", False),
    ],
)
def test_an_answer_says_whether_it_bars_the_key(fence: Any, body: bytes, fenced: bool) -> None:
    lookup = {"url": "https://x.example/{key}"} | ({"fence": fence} if fence else {})
    seen = http.seen_in(outbound.Answer(404, "application/json", body), Effect(key="k"), lookup)
    assert (seen.answer, seen.fenced) == (ABSENT, fenced)
    asked = http._question(Effect(key="k"), lookup).url
    assert asked == "https://x.example/k" + ("?fence=1" if fence else "")


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(
    ("key_fencing", "asks", "fenced", "settlement"),
    [
        (False, False, False, "UNKNOWN"),  # a lost holder may still send
        (False, False, True, "UNKNOWN"),  # its kind neither promises that nor asks for it
        (False, True, True, "NOT_APPLIED"),  # absent and fenced
        (True, False, False, "NOT_APPLIED"),  # by the word of its kind, each look-up bars the key
        (True, True, False, "UNKNOWN"),  # it was asked to, and its answer did not say so
    ],
)
def test_absent_and_fenced_settles_what_a_lost_holder_may_have_sent(
    world: World, key_fencing: bool, asks: bool, fenced: bool, settlement: str
) -> None:
    kind = a_kind(
        world.workspace,
        key_fencing=key_fencing,
        lookup={"url": "https://x.example/{key}"} | ({"fence": True} if asks else {}),
        updated_at=in_seconds(-700),
    )
    step = world.claimed(world.run())
    permit = a_permit(step, "LOST", effect_key="charge:7", ended_at=in_seconds(-400))
    effect = an_effect(
        *(step, "UNKNOWN", permit), key="charge:7", kind=kind, dispatched_at=in_seconds(-500), attempt=1
    )
    assert reconcile.apply_answer(effect.pk, Answer(ABSENT, fenced=fenced)) == settlement
    assert ("effect.not_applied" in kinds_of(Run.objects.get(pk=effect.run_id))) == (settlement != "UNKNOWN")


def test_a_key_that_is_barred_is_not_tried_again() -> None:
    lookup = {"url": "https://x.example/{key}", "fence": True}
    kind: dict[str, Any] = {
        "op_class": "external_write",
        "provider": "http",
        "send": {"url": "https://x.example"},
    }
    new = NewKind(**kind, lookup=lookup)
    check(new)
    with pytest.raises(BadKind, match="bars for good"):
        check(NewKind(**{**vars(new), "retry_after_s": [5.0]}))

"""Evidence: one unbroken sequence a stream, chained by seals in which each kind of tampering shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce

import pytest
from django.db import connection

from runs import evidence
from runs.evidence import canonical, chain, digest, seal_stream, streams_to_seal
from runs.models import Evidence, EvidencePayload, Run, Seal
from tests.flush import without_triggers
from tests.worlds import World, a_run, kinds_of

pytestmark = pytest.mark.django_db


def told(world: World) -> Run:
    """A run with a full story, sealed in two parts."""
    run = world.run()
    opened = world.opened(run)
    assert seal_stream(run.pk) is not None
    world.stop(run, note="stop")
    world.report(opened, "applied")
    assert seal_stream(run.pk) is not None
    return run


def broken(run: Run) -> list[int]:
    """The seals (by their last line) that the lines no longer lead to."""
    wrong: list[int] = []
    head, after = "", 0
    for seal in Seal.objects.filter(stream=run.pk).order_by("upto_seq"):
        lines = list(
            Evidence.objects.filter(stream=run.pk, seq__gt=after, seq__lte=seal.upto_seq).order_by("seq")
        )
        for line in lines:
            head = chain(head, line)
        if head != seal.head or [line.seq for line in lines] != list(range(after + 1, seal.upto_seq + 1)):
            wrong.append(seal.upto_seq)
        head, after = seal.head, seal.upto_seq
    return wrong


# --- The sequence -----------------------------------------------------------------------------------------


@pytest.mark.invariant("I26")
def test_the_lines_of_a_stream_are_numbered_without_a_gap(world: World) -> None:
    run, other = told(world), world.run("other")
    for stream in (run, other):
        seqs = list(Evidence.objects.filter(stream=stream.pk).order_by("seq").values_list("seq", flat=True))
        assert seqs == list(range(1, len(seqs) + 1))
        assert seqs
    times = list(Evidence.objects.filter(stream=run.pk).order_by("seq").values_list("at", flat=True))
    assert times == sorted(times)


def test_a_line_keeps_the_digest_of_its_body_and_the_body_stands_beside_it(world: World) -> None:
    run = told(world)
    payloads = EvidencePayload.objects.filter(stream=run.pk)
    assert payloads.count() >= 3
    for payload in payloads:
        line = Evidence.objects.get(stream=run.pk, seq=payload.seq)
        assert line.payload_digest == digest(payload.body)
        assert canonical(json.loads(payload.body)) == payload.body
    without = Evidence.objects.filter(stream=run.pk).exclude(seq__in=payloads.values("seq"))
    assert set(without.values_list("payload_digest", flat=True)) == {""}


def test_a_person_or_a_token_is_named_by_id_only(world: World) -> None:
    run = told(world)
    actors = set(Evidence.objects.filter(stream=run.pk).values_list("actor", flat=True))
    assert actors == {world.agent.id, world.alice.id, "system"}
    assert world.alice.user is not None
    assert world.alice.user.email not in str(list(EvidencePayload.objects.values_list("body", flat=True)))


def test_canonical_text_is_sorted_and_refuses_what_json_can_not_say() -> None:
    assert canonical({"b": 1, "a": "ä"}) == '{"a":"ä","b":1}'
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            canonical({"x": value})


# --- The chain --------------------------------------------------------------------------------------------


@pytest.mark.invariant("I26")
def test_two_seals_chain_all_lines_and_nothing_is_left_to_seal(world: World) -> None:
    run = told(world)
    seals = list(Seal.objects.filter(stream=run.pk).order_by("upto_seq"))
    assert [seal.upto_seq for seal in seals][1] == len(kinds_of(run))
    assert len({seal.head for seal in seals}) == 2
    assert broken(run) == []
    assert seal_stream(run.pk) is None
    assert run.pk not in streams_to_seal()


def test_a_stream_with_new_lines_is_found_and_sealed(world: World) -> None:
    run = told(world)
    world.stop(run, by=world.bob)
    assert run.pk in streams_to_seal()
    assert seal_stream(run.pk) is not None
    assert (broken(run), Seal.objects.filter(stream=run.pk).count()) == ([], 3)


@pytest.mark.invariant("I26")
def test_a_long_tail_is_sealed_some_lines_at_a_time_with_the_head_of_one_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the run's lock, a stop above all, waits for a part only."""
    run = world.run()
    opened = world.opened(run)
    world.stop(run)
    world.report(opened, "applied")
    lines = list(Evidence.objects.filter(stream=run.pk).order_by("seq"))
    monkeypatch.setattr(evidence, "AT_A_TIME", 2)
    newest = seal_stream(run.pk)
    seals = list(Seal.objects.filter(stream=run.pk).order_by("upto_seq"))
    assert len(lines) >= 5
    assert [seal.upto_seq for seal in seals] == [*range(2, len(lines), 2), len(lines)]
    assert newest is not None
    assert newest.head == seals[-1].head == reduce(chain, lines, "")


def test_a_workspace_has_a_stream_of_its_own(world: World) -> None:
    world.stop_key("nightly-42")
    assert world.workspace.pk in streams_to_seal()
    assert seal_stream(world.workspace.pk) is not None
    assert seal_stream("run_absent") is None


def edit(run: Run) -> None:
    raw("UPDATE runs_evidence SET actor = 'user:0' WHERE stream = %s AND seq = 2", run.pk)


def edit_time(run: Run) -> None:
    raw("UPDATE runs_evidence SET at = '2001-01-01 00:00:00' WHERE stream = %s AND seq = 2", run.pk)


def edit_digest(run: Run) -> None:
    raw("UPDATE runs_evidence SET payload_digest = '0' WHERE stream = %s AND seq = 1", run.pk)


def delete_in_the_middle(run: Run) -> None:
    raw("DELETE FROM runs_evidence WHERE stream = %s AND seq = 2", run.pk)


def cut_the_tail(run: Run) -> None:
    raw("DELETE FROM runs_evidence WHERE stream = %s AND seq = %s", run.pk, len(kinds_of(run)))


def swap(run: Run) -> None:
    for old, new in ((2, 9002), (3, 2), (9002, 3)):
        raw("UPDATE runs_evidence SET seq = %s WHERE stream = %s AND seq = %s", new, run.pk, old)


def move_text_between_fields(run: Run) -> None:
    raw("UPDATE runs_evidence SET ground = worker, worker = ground WHERE stream = %s AND seq = 2", run.pk)


def insert_one(run: Run) -> None:
    last = Evidence.objects.filter(stream=run.pk).latest("seq")
    moved = Evidence.objects.filter(stream=run.pk, seq=2).values().get()
    raw("UPDATE runs_evidence SET seq = %s WHERE stream = %s AND seq = %s", last.seq + 1, run.pk, last.seq)
    Evidence.objects.create(**{**moved, "seq": last.seq})


def change_a_seal(run: Run) -> None:
    raw("UPDATE runs_seal SET head = %s WHERE stream = %s AND upto_seq = 4", "0" * 64, run.pk)


def raw(sql: str, *values: object) -> None:
    with without_triggers(connection) as cursor:
        cursor.execute(sql, values)


TAMPERINGS = [
    edit,
    edit_time,
    edit_digest,
    delete_in_the_middle,
    cut_the_tail,
    swap,
    move_text_between_fields,
    insert_one,
    change_a_seal,
]


@pytest.mark.invariant("I26")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_the_chain_shows_the_place_where_it_was_tampered_with(tamper: Callable[[Run], None]) -> None:
    run = told(World())
    first, second = Seal.objects.filter(stream=run.pk).order_by("upto_seq").values_list("upto_seq", flat=True)
    assert (first, second, broken(run)) == (4, len(kinds_of(run)), [])
    tamper(run)
    place = second if tamper in (cut_the_tail, insert_one) else first
    assert broken(run)[0] == place


def test_a_payload_that_was_emptied_by_retention_leaves_the_chain_whole(world: World) -> None:
    run = told(world)
    payload = EvidencePayload.objects.filter(stream=run.pk).latest("seq")
    emptied = {"body": "", "removed_at": run.admitted_at, "removed_under": "retention, 90 days"}
    EvidencePayload.objects.filter(stream=run.pk, seq=payload.seq).update(**emptied)
    assert broken(run) == []
    assert a_run().pk not in streams_to_seal()

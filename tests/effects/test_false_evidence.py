"""What is no evidence, however it is brought in: each of these settled something once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effects import accounts, polled, reconcile, repair, resolve
from effects.models import Account, Effect, Kind
from effects.providers.page_rules import Rule
from effects.reconcile import Answer, Asked
from effects.resolve import Checked
from runs import access
from runs.evidence import Line, record
from runs.models import Evidence, EvidencePayload, Token
from tests.effects.hooking import READS, an_account
from tests.effects.unknowns import an_unknown, looked_up, now, said, say
from tests.worlds import World, a_kind, a_permit, a_token, in_seconds

pytestmark = pytest.mark.django_db


def a_polled_kind(world: World, **fields: Any) -> Kind:
    rules = {"lookup": {"poll": True}, "updated_at": in_seconds(-9_000), "settle_window_s": 60}
    return a_kind(world.workspace, **{**rules, **fields})


def an_agent_of(world: World, person: Any) -> Any:
    agent = a_token(world.workspace)
    assert agent.token is not None
    Token.objects.filter(pk=agent.token.pk).update(created_by=person.user)
    return agent


def answered(world: World, row: Any, by: Any, said: Answer) -> int:
    """An agent comes for the look-up of this effect and answers it; the seq of its line."""
    Effect.objects.filter(pk=row.pk).update(next_check_at=in_seconds(-1), check_until=in_seconds(3_600))
    [turn] = [one for one in polled.take(by, world.workspace.pk) if one.row.pk == row.pk]
    polled.answer(actor=by, effect_id=row.pk, turn=turn.id, said=said)
    line = Evidence.objects.filter(stream=row.run_id, kind="effect.looked_up").order_by("-seq").first()
    assert line is not None
    return line.seq


def payload_of(row: Any, kind: str) -> dict[str, Any]:
    """Of the newest line of this kind."""
    line = Evidence.objects.filter(stream=row.run_id, kind=kind).order_by("-seq")[0]
    told: dict[str, Any] = json.loads(EvidencePayload.objects.get(stream=line.stream, seq=line.seq).body)
    return told


# --- An agent in its provider's place ---


@pytest.mark.parametrize(("of", "reason"), [("alice", "own_run"), ("bob", "NOT_APPLIED")])
def test_what_ones_own_agent_says_of_ones_own_run_is_ones_own_word(
    world: World, of: str, reason: str
) -> None:
    row = an_unknown(world, owner=world.alice.user, kind=a_polled_kind(world))
    agent = an_agent_of(world, getattr(world, of))
    line = looked_up(row, "absent", answered_by=agent.id)
    assert said(say(row, world.alice, "did not happen", lines=[line])) == reason


def test_what_an_agent_answers_to_our_question_is_nobodys_evidence_of_the_run_of_its_owner(
    world: World,
) -> None:
    row = an_unknown(world, owner=world.alice.user, kind=a_polled_kind(world))
    line = looked_up(row, "absent", answered_by="callback")
    assert said(say(row, world.alice, "did not happen", lines=[line])) == "own_run"
    by_the_provider = looked_up(row, "absent")
    assert said(say(row, world.alice, "did not happen", lines=[by_the_provider])) == "NOT_APPLIED"


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("promised", "becomes"), [(False, "UNKNOWN"), (True, "NOT_APPLIED")])
def test_an_agent_bars_no_key_that_its_kind_does_not_promise_to_bar(
    world: World, promised: bool, becomes: str
) -> None:
    row = an_unknown(world, kind=a_polled_kind(world, key_fencing=promised), permit="LOST")
    line = answered(world, row, an_agent_of(world, world.bob), Answer("absent", fenced=True))
    assert now(row) == becomes
    if not promised:
        assert said(say(row, world.carol, "did not happen", lines=[line])) == "lost_holder"


# --- Nothing found: by itself, and cited by a person ---

# What is different from an absence that proves it → whether it still does. By hand, from the contract.
ABSENCE: dict[str, bool] = {
    "nothing": True,
    "asked inside the settle window": False,
    "asked before the holder's call was over": False,
    "asked after the provider forgets keys": False,
    "asked of an earlier attempt": False,
    "the kind was changed after it was sent": False,
    "the account is at another place": False,
    "the account shows another credential": False,
    "the account shows it in another header": False,
    "the account shows the same credential again": True,
    "the account reads its webhooks otherwise": True,
    "a secret of the account was rotated": True,
}
BANK = {"origin": "https://bank.example", "credential": "Bearer of-the-first"}


def a_bank(world: World, **fields: Any) -> Account:
    return an_account(world.workspace, **{**BANK, **fields})[0]


def asked_of(world: World, row: Any, different: str) -> Asked:
    """Bring that about; when it was asked, and of which attempt."""
    at, attempt = in_seconds(0), row.attempt
    if different == "asked inside the settle window":
        at = in_seconds(-550)
    elif different == "asked before the holder's call was over":
        at = in_seconds(-610)
    elif different == "asked of an earlier attempt":
        attempt -= 1
    elif different == "asked after the provider forgets keys":
        Kind.objects.update(key_retention_s=300)
    elif different == "the kind was changed after it was sent":
        Kind.objects.update(updated_at=in_seconds(-599))
    elif different == "a secret of the account was rotated":
        accounts.rotate_secret(
            actor=access.SET_UP, workspace_id=world.workspace.pk, account_id=Account.objects.get().pk
        )
    elif different.startswith("the account"):
        a_bank(world, **ANEW[different])
    return Asked(at, attempt)


ANEW: dict[str, dict[str, Any]] = {
    "the account is at another place": {"origin": "https://other.example", "credential": None},
    "the account shows another credential": {"credential": "Bearer of-the-second"},
    "the account shows it in another header": {"header": "X-Api-Key", "credential": None},
    "the account shows the same credential again": {},
    "the account reads its webhooks otherwise": {"credential": None, "reads": {**READS, "partly": ["half"]}},
}


def of_the_bank(world: World, **fields: Any) -> Any:
    a_bank(world)
    kind = a_kind(
        world.workspace, account="bank", lookup={"url": "https://x/{key}"}, updated_at=in_seconds(-9_000)
    )
    return an_unknown(world, kind=kind, **fields)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("different", "proves"), ABSENCE.items())
def test_an_absence_that_settles_nothing_by_itself_is_nobodys_evidence_either(
    world: World, different: str, proves: bool
) -> None:
    row = of_the_bank(world, owner=world.alice.user)
    asked = asked_of(world, row, different)
    line = looked_up(row, "absent", asked_at=asked.at.isoformat(), attempt=asked.attempt)
    answer = say(row, world.alice, "did not happen", lines=[line])
    assert said(answer) == ("NOT_APPLIED" if proves else "own_run")
    other = an_unknown(world, kind=row.kind)
    state = reconcile.apply_answer(other.pk, Answer("absent"), asked=asked)
    assert state == ("NOT_APPLIED" if proves else "UNKNOWN")


@pytest.mark.invariant("I10")
def test_a_line_that_does_not_say_when_it_was_asked_proves_no_absence(world: World) -> None:
    row = of_the_bank(world, owner=world.alice.user)
    line = Line("effect.looked_up", "system", {"answer": "absent"}, ground="looked up", effect_key=row.key)
    assert said(say(row, world.alice, "did not happen", lines=[record(row.run, line)])) == "own_run"


def test_a_line_keeps_when_it_was_asked_and_of_which_attempt(world: World) -> None:
    """So that what it proves can be judged as it was."""
    row, asked = of_the_bank(world), Asked(in_seconds(-7), 1)
    reconcile.apply_answer(row.pk, Answer("can't tell"), asked=asked)
    told = payload_of(row, "effect.looked_up")
    assert (told["asked_at"], told["attempt"]) == (asked.at.isoformat(), 1)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("calls", [1, 2])
def test_a_refusal_that_may_be_of_another_call_is_nobodys_evidence(world: World, calls: int) -> None:
    row = of_the_bank(world, owner=world.alice.user)
    if calls == 2:
        a_permit(row.step, "REPORTED", effect_key=row.key, ended_at=in_seconds(-300))
    line = looked_up(row, "refused", "webhook")
    answer = say(row, world.alice, "did not happen", lines=[line])
    assert said(answer) == ("NOT_APPLIED" if calls == 1 else "own_run")


# --- What a page shows ---

# What the kind wants · the key · what the page shows → whether that is it.
SHOWN = [
    ("Order {key}", "order-1", "Order order-1", True),
    ("Order {key}", "order-1", "Your Order order-1: paid", True),
    ("Order {key}", "order-1", "Order order-1.\nThank you", True),
    ("Order {key}", "order-1", "Order order-10", False),
    ("Order {key}", "order-1", "Order order-1-b", False),
    ("Order {key}", "order-1", "Order order-1/2", False),
    ("Order {key}", "order-1", "Order order-1.5", False),
    ("Order {key}", "order-1", "Order order-1\u200b0", False),
    ("Order {key}", "order-1", "Order order-10, Order order-1", True),
    ("{key}", "7", "charge:7", False),
    ("{key}", "7", "17", False),
    ("{key}", "7", "7 items", True),
    ("{key}", "a+", "“a+”", True),
    ("{key}", "a+", "aa", False),
    ("{key} was booked", "order-1", "my-order-1 was booked", False),
    ("{key} was booked", "order-1", "(order-1 was booked)", True),
    ("#{key} by {key}", "1", "#1 by 1", True),
    ("#{key} by {key}", "1", "#1 by 12", False),
    ("paid", "k", "It is paid.", True),
    ("paid", "k", "unpaid", False),
    ("paid", "k", "paid_back", False),
    ("已支付", "k", "订单已支付成功", True),
]


@pytest.mark.parametrize(("wanted", "key", "shown", "fits"), SHOWN)
def test_a_page_shows_a_key_only_as_a_word_of_its_own(wanted: str, key: str, shown: str, fits: bool) -> None:
    rule = Rule.of({"selector": ".order", "text": wanted}, Effect(key=key))
    assert rule is not None
    assert rule._fits(shown) is fits


def test_what_a_page_has_to_equal_is_all_that_it_shows() -> None:
    rule = Rule.of({"selector": ".order", "equals": "Order {key}"}, Effect(key="order-1"))
    assert rule is not None
    assert [rule._fits(one) for one in ("Order order-1", "Order order-10", "1 Order order-1")] == [
        True,
        False,
        False,
    ]


# --- Files that were put back ---


@pytest.mark.parametrize(
    ("answer", "means", "state"),
    [
        ("present", "happened", "VERIFIED"),
        ("partial", "partly", "FAILED"),
        ("absent", "did not happen", "FAILED"),
        ("can't tell", "nothing", "UNKNOWN"),
    ],
)
def test_who_asks_about_files_that_were_put_back_hears_what_it_came_to(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: str, means: str, state: str
) -> None:
    row = an_unknown(world, "compensation", kind_name="restore_files", op_class="workspace_change")
    monkeypatch.setattr("effects.asking.close_old_connections", lambda: None)
    monkeypatch.setattr(repair, "ask_provider", lambda _: Answer(answer))
    told = resolve.check_now(actor=world.alice, subject_id=row.pk)
    assert isinstance(told, Checked)
    assert (told.answer, told.means, told.state) == (answer, means, state)
    assert payload_of(row, "compensation.looked_up")["means"] == means


def test_of_what_nobody_registered_nothing_found_proves_nothing(world: World) -> None:
    """The control: a compensation without a kind that is not the put-back of files."""
    row = an_unknown(world, "compensation")
    assert repair.apply_answer(row.pk, Answer("absent")) == "UNKNOWN"

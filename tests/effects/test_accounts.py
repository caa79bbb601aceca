"""Accounts at providers: a credential goes to its origin alone and is told nowhere; a secret is told once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from effects import accounts, executor, intents, kinds, outbound, providers
from effects.accounts import BadAccount, InUse, New
from effects.kinds import BadKind, NewKind
from effects.models import Account, Effect, Inbound, Kind
from runs import access, people
from runs.access import NotAllowed, NotFound
from runs.models import Evidence, EvidencePayload, Role, User
from tests.effects.answering import Answering
from tests.effects.hooking import READS, Teller, an_account
from tests.wire import ALL, Wire
from tests.worlds import World, a_kind, a_person, a_token, fresh, in_seconds, intention

pytestmark = pytest.mark.django_db
CREDENTIAL = "Bearer canary-5d1f7e-credential"
CANARIES = ("canary-5d1f7e", "whsec_")


@pytest.fixture
def bank(settings: Settings) -> Iterator[Answering]:
    with Answering() as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.origin]
        yield bank


def put(world: World, name: str = "bank", **fields: Any) -> accounts.Put:
    new = New(**fields)
    return accounts.put_account(actor=world.agent, workspace_id=world.workspace.pk, name=name, new=new)


# --- where the credential goes ------------------------------------------------------------------------------

#   the account's origin        the address that is called              shown
GOES = [
    ("https://bank.example", "https://bank.example/charges", True),
    ("https://bank.example:443/", "https://bank.example/charges?key=1", True),
    ("https://bank.example", "https://bank.example:8443/charges", False),
    ("https://bank.example", "https://api.bank.example/charges", False),
    ("https://bank.example", "https://bank.example.evil.example/", False),
    ("https://bank.example", "https://evil.example/?https://bank.example", False),
    ("https://bank.example", "http://bank.example/charges", False),
]


@pytest.mark.parametrize(("origin", "url", "shown"), GOES)
def test_a_credential_goes_to_the_exact_origin_alone(
    world: World, origin: str, url: str, shown: bool
) -> None:
    put(world, origin=origin, credential=CREDENTIAL, header="X-Api-Key")
    kind = a_kind(world.workspace, account="bank")
    assert accounts.credential_for(kind, url) == ({"X-Api-Key": CREDENTIAL} if shown else {})


def test_no_kind_of_another_workspace_and_none_without_it_shows_it(world: World) -> None:
    put(world, origin="https://bank.example", credential=CREDENTIAL)
    for kind in (a_kind(world.elsewhere, account="bank"), a_kind(world.workspace)):
        assert accounts.credential_for(kind, "https://bank.example/") == {}


def test_another_origin_takes_the_credential_away(world: World) -> None:
    """Whoever may change the origin must not be able to have it sent to themselves."""
    put(world, origin="https://bank.example", credential=CREDENTIAL)
    kept = put(world, origin="https://bank.example", reads=READS).account
    assert kept.credential
    assert not put(world, origin="https://evil.example").account.credential
    assert put(world, origin="https://evil.example", credential=CREDENTIAL).account.credential
    assert not put(world, origin="https://evil.example", credential="").account.credential


def test_a_credential_that_can_not_be_read_sends_nothing(world: World, settings: Settings) -> None:
    put(world, origin="https://bank.example", credential=CREDENTIAL)
    settings.SECRET_KEY = "another one"
    with pytest.raises(outbound.Refused):
        accounts.credential_for(a_kind(world.workspace, account="bank"), "https://bank.example/")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"origin": "https://bank.example/path"}, "origin"),
    ({"origin": "http://bank.example"}, "origin"),
    ({"origin": "https://a:b@bank.example"}, "origin"),
    ({"origin": "nowhere"}, "origin"),
    ({"credential": CREDENTIAL}, "origin"),
    ({"origin": "https://bank.example", "credential": "short"}, "credential"),
    ({"origin": "https://bank.example", "credential": "two\r\nlines-of-it"}, "credential"),
    ({"origin": "https://bank.example", "credential": " spaces-around "}, "credential"),
    ({"header": "Host"}, "header"),
    ({"header": "Idempotency-Key"}, "header"),
    ({"header": "X:Y"}, "header"),
    ({"reads": {"key_path": "a b", **{k: v for k, v in READS.items() if k != "key_path"}}}, "reads.key_path"),
    ({"reads": {"verdict_path": "a", "happened": ["x"]}}, "reads.key_path"),
    ({"reads": {**READS, "did_not": ["succeeded"]}}, "reads.happened"),
    ({"reads": {**READS, "happened": [["x"]]}}, "reads.happened"),
    ({"reads": {**READS, "more": 1}}, "reads.more"),
    ({"reads": {"key_path": "a"}}, "reads.verdict_path"),
    ({"reads": {**READS, "jobs": {"running": []}}}, "reads.jobs.running"),
]


@pytest.mark.parametrize(("fields", "named"), BAD)
def test_what_no_account_may_be(world: World, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(BadAccount) as error:
        put(world, **fields)
    assert error.value.field == named
    assert not Account.objects.exists()


# --- the verbs ----------------------------------------------------------------------------------------------


def test_the_same_again_changes_nothing_and_leaves_no_line(world: World) -> None:
    first = put(world, origin="https://bank.example", reads=READS)
    lines = Evidence.objects.count()
    again = put(world, origin="https://bank.example", reads=READS)
    assert (first.created, again.created, again.secret) == (True, False, "")
    assert Evidence.objects.count() == lines


def test_only_who_may_change_kinds_may_change_accounts(world: World) -> None:
    account, _ = an_account(world.workspace)
    named = {"workspace_id": world.workspace.pk, "account_id": account.pk}
    outsiders = [world.mallory, world.foreign_agent]
    without = [world.alice, world.bob, world.dana, a_token(world.workspace, "runs:write")]
    bound = a_token(world.workspace, "kinds:write", run=world.run())
    for actors, error in ((outsiders, NotFound), ([*without, bound], NotAllowed)):
        for actor in actors:
            for verb in (accounts.rotate_secret, accounts.end_old_secrets, accounts.remove):
                with pytest.raises(error):
                    verb(actor=actor, **named)
            with pytest.raises(error):
                accounts.put_account(actor=actor, workspace_id=world.workspace.pk, name="x", new=New())
    assert accounts.live(fresh_account(account)) == 1


def fresh_account(account: Account) -> Account:
    return Account.objects.get(pk=account.pk)


def test_an_account_that_a_kind_names_can_not_be_removed(world: World) -> None:
    account, _ = an_account(world.workspace)
    named: dict[str, Any] = {
        "actor": world.agent,
        "workspace_id": world.workspace.pk,
        "account_id": account.pk,
    }
    kind = a_kind(world.workspace, account="bank")
    with pytest.raises(InUse):
        accounts.remove(**named)
    Kind.objects.filter(pk=kind.pk).update(account="")
    accounts.remove(**named)
    assert not Account.objects.exists()


def test_a_kind_names_an_account_that_is_there(world: World) -> None:
    new = NewKind("c", ["t"], "i", "c", "d", "w", op_class="external_write", account="bank")
    named: dict[str, Any] = {"actor": world.agent, "workspace_id": world.workspace.pk, "name": "k"}
    an_account(world.elsewhere)
    with pytest.raises(BadKind):
        kinds.register_kind(new=new, **named)
    an_account(world.workspace)
    assert kinds.register_kind(new=new, **named).kind.account == "bank"


# --- the canary: told nowhere -------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_neither_credential_nor_secret_stands_anywhere(
    world: World, bank: Answering, caplog: pytest.LogCaptureFixture, client: Client
) -> None:
    """One that is sent, repeated by the provider, refused, rotated and shown on each page and by the API."""
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"id": "ch_1", "you_sent": CREDENTIAL, "alone": CREDENTIAL.partition(" ")[2]})
    bank.body = echo.encode()
    made = put(world, origin=bank.origin, credential=CREDENTIAL, header="X-Api-Key", reads=READS)
    rotated = accounts.rotate_secret(
        actor=world.agent, workspace_id=world.workspace.pk, account_id=made.account.pk
    )
    where: dict[str, Any] = {
        "send": {"url": f"{bank.origin}/charges"},
        "lookup": {"url": f"{bank.origin}/charges?key={{key}}"},
    }
    a_kind(world.workspace, provider="http", account="bank", updated_at=in_seconds(-600), **where)
    run = world.run()
    effect = intents.declare(world.ask(run, step_key="charge"), intention("charge"))
    assert isinstance(effect, Effect)
    assert executor.execute(effect.pk) == "applied"
    assert bank.heard[-1].headers["X-Api-Key"] == CREDENTIAL  # the control: it was shown
    Teller(made.account, rotated.secret).tell("charge")
    Teller(made.account, rotated.secret).post(b"x", {"webhook-signature": made.secret})
    assert "you_sent" in str(fresh(effect).result)  # the provider's answer was kept
    told = [str(Evidence.objects.values_list()), str(EvidencePayload.objects.values_list()), caplog.text]
    told += [str(Effect.objects.values()), str(Inbound.objects.values()), str(Account.objects.values())]
    told += list(pages(world, client, run.pk)) + list(answers(world, run.pk, effect.pk))
    assert "X-Api-Key" in "".join(told)
    assert not [text for text in told for canary in CANARIES if canary in text]
    secrets = [made.secret.removeprefix("whsec_"), rotated.secret.removeprefix("whsec_")]
    assert not [text for text in told for secret in secrets if secret in text]


def pages(world: World, client: Client, run_id: str) -> Iterator[str]:
    admin = access.person(_admin(world))
    assert admin.user is not None
    client.force_login(admin.user)
    account = Account.objects.get()
    for path in ("/accounts", f"/accounts/{account.pk}", f"/runs/{run_id}/", f"/runs/{run_id}/evidence"):
        answer = client.get(path, {"workspace": world.workspace.slug})
        assert answer.status_code == 200, path
        yield answer.content.decode()


def _admin(world: World) -> User:
    return a_person("erin", world.workspace, Role.ADMIN)


def answers(world: World, run_id: str, effect_id: str) -> Iterator[str]:
    _, token = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="all", scopes=list(ALL)
    )
    wire = Wire(token)
    for path in ("/accounts", "/accounts/bank", "/accounts/bank/webhooks", f"/effects/{effect_id}"):
        said = wire.get(path)
        assert said.status == 200, (path, said.text)
        yield said.text
    yield wire.get(f"/runs/{run_id}/evidence").text + wire.get(f"/runs/{run_id}/report").text
    yield wire.put("/accounts/bank", {"origin": "https://x.example", "credential": CREDENTIAL}).text
    yield wire.put("/accounts/bank", {"origin": "nowhere", "credential": CREDENTIAL}).text
    yield wire.put("/accounts/bank", {"credential": [CREDENTIAL]}).text


def test_an_error_of_a_call_repeats_nothing_of_it(world: World, bank: Answering) -> None:
    put(world, origin=bank.origin, credential=CREDENTIAL)
    kind = a_kind(world.workspace, account="bank", lookup={"url": f"{bank.origin}/x?key={{key}}"})
    bank.status, bank.body = 500, CREDENTIAL.encode()
    effect = Effect(key="k", kind=kind, run=world.run())
    told = providers.look_up(effect)
    assert told.answer == "can't tell"
    assert not [canary for canary in CANARIES if canary in str(told)]


def test_a_new_secret_stands_on_the_page_that_made_it_and_on_no_other(world: World, client: Client) -> None:
    account, _ = an_account(world.workspace)
    client.force_login(_admin(world))
    address = f"/accounts/{account.pk}"
    told = client.post(address, {"do": "rotate"}).content.decode()
    assert told.count("whsec_") == 1
    later = client.get(address).content.decode()
    assert "whsec_" not in later
    assert "an older one until" in later
    assert client.post(address, {"do": "end-old"}).status_code == 302
    assert accounts.live(fresh_account(account)) == 1
    assert client.post(f"{address}/remove").status_code == 302
    assert client.get(address).status_code == 404


# --- the API ------------------------------------------------------------------------------------------------


def test_an_account_over_the_api(world: World) -> None:
    _, token = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="all", scopes=list(ALL)
    )
    wire = Wire(token)
    body = {"origin": "https://bank.example", "credential": CREDENTIAL, "reads": READS}
    made = wire.put("/accounts/bank", body)
    assert made.status == 201
    assert made.data["secret"].startswith("whsec_")
    account = made.data["account"]
    assert (account["has_credential"], account["secrets_in_force"]) == (True, 1)
    assert account["webhook"] == f"/hooks/{account['id']}"
    again = wire.put("/accounts/bank", {**body, "credential": None})
    assert (again.status, again.data["secret"], again.data["account"]["has_credential"]) == (200, None, True)
    rotated = wire.call("POST", "/accounts/bank/rotate", {})
    assert rotated.data["account"]["secrets_in_force"] == 2
    assert rotated.data["secret"] != made.data["secret"]
    assert wire.call("POST", "/accounts/bank/end-old-secrets", {}).data["secrets_in_force"] == 1
    Teller(Account.objects.get(), rotated.data["secret"]).tell("charge:7")
    [seen] = wire.get("/accounts/bank/webhooks").data["items"]
    assert (seen["effect_key"], seen["verdict"], seen["became"]) == ("charge:7", "happened", "waiting")
    a_kind(world.workspace, account="bank")
    assert wire.call("DELETE", "/accounts/bank").problem == "account-in-use"
    Kind.objects.update(account="")
    assert wire.call("DELETE", "/accounts/bank").status == 204
    assert wire.get("/accounts/bank").problem == "not-found"

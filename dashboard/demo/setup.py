"""Makes the demo's workspace and people, registers its kinds, and starts its outside world.

The only module of the demo that knows the server. Everything may be there already: `prepare` adds what is
missing.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

from effects.kinds import NewKind, register_kind
from runs import everywhere, rules
from runs.access import SET_UP
from runs.models import Membership, Role, Run, User, Workspace
from runs.people import add_member, issue_token

from .start import WORLDS, World

NAME, SLUG = "Finance demo", "finance-demo"
REFUND = "bank.refund"
REFUND_BODY = '{"charge_key": "{key}", "amount": "{body.amount}", "currency": "{body.currency}"}'
PEOPLE = [
    ("alice@demo.example", "Alice", Role.ADMIN),
    ("bob@demo.example", "Bob", Role.REVIEWER),
]


class PasswordFile(RuntimeError):
    """The demo's password could not be kept where it was asked for."""


def prepare(*, url: str, data: Path, password_file: Path | None = None) -> World:
    """The demo, ready for its first run; `.stop()` ends its processes.

    url: where Allstop answers. data: the data folder. password_file: holds the password of the demo's people;
    made (0600) when it isn't there. Without it a new password is printed, once. Raises PasswordFile,
    RuntimeError.
    """
    try:
        workspace = everywhere.make_workspace(slug=SLUG, name=NAME)
        print(people(workspace, password_file), flush=True)
        world = World(url, lambda: token(workspace), folder(data), next_batch=next_batch(workspace))
        begin(world)
        register_kinds(workspace, world)
        permit_refunds(workspace)
    finally:
        connections.close_all()
    WORLDS[workspace.pk] = world
    return world


def begin(world: World) -> None:
    """Start bank and mailer, and let look-ups reach them: these two origins and nothing else on loopback."""
    try:
        world.begin()
    except BaseException:
        world.stop()
        raise
    settings.ALLSTOP_OUTBOUND_ORIGINS = [*settings.ALLSTOP_OUTBOUND_ORIGINS, world.bank, world.mailer]


def folder(data: Path) -> Path:
    """Where the demo keeps its ledgers and logs."""
    mine = Path(data) / "demo"
    mine.mkdir(mode=0o700, exist_ok=True)
    return mine


def token(workspace: Workspace) -> str:
    """A token for one agent, good for a day."""
    scopes = ["runs:read", "runs:write"]
    return issue_token(actor=SET_UP, workspace_id=workspace.pk, name="demo agent", scopes=scopes, days=1)[1]


def next_batch(workspace: Workspace) -> int:
    """One more than the last demo run."""
    keys = Run.objects.filter(workspace=workspace, key__startswith="demo-invoices-").values_list(
        "key", flat=True
    )
    numbers = [int(end) for key in keys if (end := key.rpartition("-")[2]).isdigit()]
    return max(numbers, default=0) + 1


# people -----------------------------------------------------------------------------------------


def people(workspace: Workspace, password_file: Path | None) -> str:
    """See that the demo's people exist; the sentence that tells how to sign in."""
    users = [User.objects.get_or_create(email=email, defaults={"name": name}) for email, name, _ in PEOPLE]
    for (user, _), (_, _, role) in zip(users, PEOPLE, strict=True):
        if not Membership.objects.filter(user=user, workspace=workspace).exists():
            add_member(actor=SET_UP, workspace_id=workspace.pk, email=user.email, role=role)
    names = " or ".join(f"{email} ({role})" for email, _, role in PEOPLE)
    if password_file is not None:
        give_password([user for user, _ in users], password_in(password_file))
        return f"Sign in as {names}; the password is in {password_file}"
    fresh = [user for user, new in users if new or not user.has_usable_password()]
    if not fresh:
        return f"Sign in as {names}, with the password that was printed the first time."
    password = secrets.token_urlsafe(12)
    give_password(fresh, password)
    return f"Sign in as {names}, password: {password}"


def give_password(users: list[User], password: str) -> None:
    """Set the password where it is another one."""
    for user in users:
        if not user.check_password(password):
            user.set_password(password)
            user.save(update_fields=["password"])


def password_in(file: Path) -> str:
    """The password in the file; a new one, readable by its owner alone, when there is none. Raises
    PasswordFile.
    """
    try:
        if file.exists() and (kept := file.read_text().strip()):
            return kept
        password = secrets.token_urlsafe(12)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(password + "\n")
        return password
    except OSError as error:
        raise PasswordFile(
            f"The password file {file} can't be used ({error.strerror}). Name another."
        ) from None


# kinds ------------------------------------------------------------------------------------------


def register_kinds(workspace: Workspace, world: World) -> None:
    """The demo's kinds, with look-ups at the addresses that bank and mailer have today."""
    kinds = {"bank.charge": bank_charge, REFUND: bank_refund, "mailer.send": mailer_send}
    for name, kind in kinds.items():
        register_kind(actor=SET_UP, workspace_id=workspace.pk, name=name, new=kind(world))


def permit_refunds(workspace: Workspace) -> None:
    """A refund needs one approval, also after a stop; only where nobody changed the rules yet."""
    if rules.standing(workspace.pk).version == 0:
        refunds = rules.CompensationRule(kind=REFUND, approvals=1, after_a_stop=True)
        wanted = rules.Rules(compensations=(refunds,))
        rules.change_rules(actor=SET_UP, workspace_id=workspace.pk, version=0, rules=wanted)


def bank_charge(world: World) -> NewKind:
    """What can be said of a charge before any is made."""
    return NewKind(
        title="Charge a card",
        reversible="payment",
        op_class="external_write",
        commits="When the bank books it, some seconds before it answers.",
        tells_apart=["booked", "declined", "not found"],
        idempotency="The effect key, sent as Idempotency-Key. The bank books a key once.",
        compensation="A refund: a booking of its own. The charge stays in the bank's ledger.",
        durable_before_pause="The effect key and the amount.",
        when_unknown="The bank gave no answer. It may have booked the charge. It is not charged again.",
        lookup=look_up(f"{world.bank}/charges"),
        settle_window_s=120,
        check_every_s=[5, 5, 10, 10, 10, 10, 15, 30],
        check_for_s=3600,
        compensate={
            "kind": REFUND,
            "title": "Refund of {amount} to {target}",
            "target": "{target}",
            "amount": "{amount}",
            "body": REFUND_BODY,
            "expected": "{amount} booked back to {target}.",
            "risks": "{target} sees a charge and a refund, two lines. Fees of the charge stay paid.",
        },
    )


def bank_refund(world: World) -> NewKind:
    """What can be said of a refund before any is made: our own executor sends it."""
    return NewKind(
        title="Refund a charge",
        op_class="external_write",
        provider="http",
        commits="When the bank books it, before it answers.",
        tells_apart=["booked", "not found"],
        idempotency="The compensation's own key, sent as Idempotency-Key. The bank books a key once.",
        compensation="None: money that was paid back is asked for by a new charge.",
        durable_before_pause="The key and the amount.",
        when_unknown="The bank gave no answer. It may have booked the refund. It is not sent again.",
        send={"url": f"{world.bank}/refunds", "method": "POST"},
        lookup=look_up(f"{world.bank}/refunds"),
        settle_window_s=30,
        check_every_s=[2, 5, 10, 30],
        check_for_s=3600,
    )


def mailer_send(world: World) -> NewKind:
    """What can be said of a mail before any is sent."""
    return NewKind(
        title="Send a mail",
        reversible="mail_sent",
        op_class="delivery",
        commits="When the mailer accepts it.",
        tells_apart=["accepted", "not found"],
        idempotency="The effect key, sent as Idempotency-Key. The mailer accepts a key once.",
        compensation="None: a mail that was handed over can't be called back.",
        durable_before_pause="The effect key and the text.",
        when_unknown="The mailer gave no answer. The mail may be on its way. It is not sent again.",
        lookup=look_up(f"{world.mailer}/mails"),
        settle_window_s=30,
        check_every_s=[5, 5, 10, 30],
        check_for_s=3600,
    )


def look_up(url: str) -> dict[str, Any]:
    """Ask by key; only an object that carries this very key counts as present."""
    return {
        "url": f"{url}?key={{key}}",
        "method": "GET",
        "present_if": {"status": 200},
        "key_path": "key",
        "absent_status": [404],
    }

"""The demo's agent: reads the orders, drafts each invoice, charges the card, mails the receipt.

`python -m dashboard.demo.agent --batch 1 --bank URL --mailer URL`, with ALLSTOP_URL and ALLSTOP_TOKEN set. It
is an ordinary user of the client, as yours would be, and takes about two minutes. When its run is paused it
waits for the resume.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from allstop import (
    Client,
    Effect,
    GateUnavailable,
    MustWait,
    NotApplied,
    Outcome,
    Refused,
    Run,
    StopRequested,
    http_outcome,
)

ORDERS = Path(__file__).with_name("orders.json")
DRAFTING_S = 1.5
BREATH_S = 1.0
ASK_AGAIN_S = 5.0


@dataclass(frozen=True)
class Order:
    """One order of the batch; the invoice number is also what keys are made of."""

    invoice: str
    customer: str
    mail: str
    amount: str
    goods: str


def read_orders(batch: int) -> list[Order]:
    """The orders of a batch."""
    rows = json.loads(ORDERS.read_text(encoding="utf-8"))
    return [
        Order(f"INV-{batch:04}-{n:02}", row["customer"], row["mail"], row["amount"], row["for"])
        for n, row in enumerate(rows, 1)
    ]


def draft(order: Order, pace: float) -> Outcome:
    """Stands in for a model turn: no model is called."""
    time.sleep(DRAFTING_S * pace)
    text = (
        f"Dear {order.customer},\n\nfor {order.goods} we charge EUR {order.amount}.\nInvoice {order.invoice}."
    )
    return Outcome("applied", result=text, usage={"output_words": len(text.split())})


@dataclass(frozen=True)
class Invoicing:
    """The work of one run. pace: every wait is multiplied by it. billed: invoices that `bill` ended, with its
    answer.
    """

    run: Run
    bank: str
    mailer: str
    pace: float
    billed: dict[str, bool] = field(default_factory=dict)

    def work(self, batch: int) -> None:
        """Every order once; at the end, a second look at those whose charge got no answer."""
        orders: list[Order] = self.run.read(read_orders, batch)
        say(f"{len(orders)} orders.")
        for order in orders:
            if order.invoice not in self.billed:
                self.billed[order.invoice] = self.bill(order)
        for order in [order for order in orders if not self.billed[order.invoice]]:
            say(f"{order.invoice}: is it known by now?")
            self.settle(order)

    def bill(self, order: Order) -> bool:
        """Draft, charge, mail. False when nobody knows whether the card was charged."""
        text = str(self.run.model_turn(draft, order, self.pace).result)
        try:
            self.charge(order)
        except NotApplied as reason:
            say(f"{order.invoice}: not charged. {reason}")
            return True
        except httpx2.RequestError:
            say(f"{order.invoice}: no answer. It may have been charged, so: no receipt, and no second try.")
            return False
        self.mail(order, text)
        self.rest(BREATH_S)
        return True

    def settle(self, order: Order) -> None:
        """Ask for the same charge again: the gate says what is known, and never sends a key in doubt."""
        try:
            self.charge(order)
        except MustWait:
            say(f"{order.invoice}: not known yet. It stays open.")
        except (NotApplied, httpx2.RequestError) as reason:
            say(f"{order.invoice}: {reason}")
        else:
            self.mail(order, f"Invoice {order.invoice} over EUR {order.amount} was paid.")

    def charge(self, order: Order) -> None:
        """Charge the card. The bank gets the effect's key and the very bytes that were declared."""
        title = f"Charge €{order.amount} to {order.customer}"
        body = {
            "merchant": order.customer,
            "amount": order.amount,
            "currency": "EUR",
            "invoice": order.invoice,
        }
        effect = self.run.effect(
            key=f"charge:{order.invoice}",
            kind="bank.charge",
            target=order.customer,
            title=title,
            amount=f"€{order.amount}",
            body=json.dumps(body, ensure_ascii=False),
            compensation={"kind": "bank.refund", "title": f"Refund of €{order.amount} to {order.customer}"},
            outcome_of=http_outcome,
        )
        say(f"{title} …")
        effect.send(post, f"{self.bank}/charges", effect)
        say(f"{title}: {'known to be charged' if effect.skipped else 'charged'}.")

    def mail(self, order: Order, text: str) -> None:
        """Mail the receipt."""
        body = {"to": order.mail, "subject": f"Receipt for {order.invoice}", "text": text}
        effect = self.run.effect(
            key=f"mail:{order.invoice}",
            kind="mailer.send",
            target=order.mail,
            title=f"Mail receipt to {order.customer}",
            body=json.dumps(body, ensure_ascii=False),
            none_because="A mail that was handed over can't be called back.",
            op_class="delivery",
            outcome_of=http_outcome,
        )
        effect.send(post, f"{self.mailer}/mails", effect)
        say(f"Receipt mailed to {order.mail}.")

    def rest(self, seconds: float) -> None:
        """A pause that ends as soon as a stop is known."""
        for _ in range(max(1, round(seconds * self.pace / 0.2))):
            self.run.checkpoint()
            time.sleep(min(0.2, seconds * self.pace))


def post(url: str, effect: Effect) -> Outcome:
    """One request to the outside world. Raises NotApplied when the provider turned it away."""
    headers = {"Idempotency-Key": effect.key, "Content-Type": "application/json"}
    response = httpx2.post(url, content=(effect.body or "").encode(), headers=headers, timeout=30)
    answer: Any = response.json()
    if response.status_code == 402:
        raise NotApplied(answer["error"])
    return Outcome(http_outcome(response).name, result=answer, provider_ref=answer.get("id"))


def say(words: str) -> None:
    """One line to the demo's log."""
    print(time.strftime("%H:%M:%S"), words, flush=True)


def work(client: Client, options: argparse.Namespace) -> str:
    """Work on the run until it is done or stopped for good; the last word. A pause is waited out: attaching
    again asks nobody to go on, it is refused until a person has resumed the run.
    """
    key, name = f"demo-invoices-{options.batch:04}", f"Invoices, batch {options.batch}"
    billed: dict[str, bool] = {}
    held = False
    while True:
        try:
            with client.run(key, name=name, session="demo", agent="invoice agent") as run:
                held = False
                Invoicing(run, options.bank, options.mailer, options.pace, billed).work(options.batch)
            return "Done."
        except Refused as no:
            if isinstance(no, StopRequested) and not no.may_resume:
                return f"Ended at a safe point. {no}"
            if not held:
                say(f"Held at a safe point. {no}")
            held = True
        time.sleep(ASK_AGAIN_S * options.pace)


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description="The demo's agent.")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--bank", required=True)
    parser.add_argument("--mailer", required=True)
    parser.add_argument("--pace", type=float, default=1.0)
    try:
        with Client() as client:
            say(work(client, parser.parse_args()))
    except GateUnavailable as gone:
        raise SystemExit(f"Ended, because nothing may start without a gate. {gone}") from None


if __name__ == "__main__":
    main()

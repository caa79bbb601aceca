"""The demo's bank. A charge takes about seven seconds, so that Stop can be pressed while it is in flight.

POST /charges  {"merchant", "amount", "currency", "invoice"}, header Idempotency-Key: 201; 200 for a known key
POST /refunds  {"charge_key", "amount", "currency"}, likewise; 422 where no such charge is booked
GET  /charges?key=K, /refunds?key=K   what was booked under the key, or 404 · GET /ledger   all that was

Two customers show what happens to everybody sooner or later: one whose answer gets lost after the money
moved, and whose charge the bank itself can't find for a while; and one whose card is declined.
"""

from __future__ import annotations

import socket
import time
import uuid

from dashboard.demo.outside import Handler, Json, serve

BEFORE_BOOKING_S = 4.0
AFTER_BOOKING_S = 3.0
ANSWER_IS_LOST = "Ostwind GmbH"
CARD_IS_DECLINED = "Waldsee KG"
REFUNDS = "/refunds"
REFUNDING_S = 1.0
# After a lost answer the bank's look-up is out of order, then finds nothing, then finds the charge.
OUT_OF_ORDER_S = 20.0
NOT_FOUND_UNTIL_S = 60.0


class Bank(Handler):
    """Books a charge once per key, and a refund once per key of its own."""

    @property
    def refunds(self) -> bool:
        """Whether this request is about a refund."""
        return self.path.partition("?")[0] == REFUNDS

    def receive(self, key: str | None, body: Json) -> None:
        """Book what is asked for."""
        (self._refund if self.refunds else self._charge)(key, body)

    def _refund(self, key: str | None, body: Json) -> None:
        """Money back for a booked charge: a booking of its own; the charge stays in the ledger."""
        charge = self.ledger.find(body["charge_key"])
        if charge is None or "refund_of" in charge or charge["amount"] != body["amount"]:
            return self.answer(422, {"error": "There is no charge like this.", "key": key})
        self.wait(REFUNDING_S)
        refund = {
            "id": f"re_{uuid.uuid4().hex[:12]}",
            "key": key,
            "status": "succeeded",
            "refund_of": charge["id"],
            "amount": body["amount"],
            "currency": body["currency"],
        }
        booked, new = self.ledger.enter_once(key, refund)
        return self.answer(201 if new else 200, booked)

    def _charge(self, key: str | None, body: Json) -> None:
        """Authorise, book, answer: the money moves in the middle."""
        merchant = body["merchant"]
        self.wait(BEFORE_BOOKING_S / 2)
        if merchant == CARD_IS_DECLINED:
            return self.answer(402, {"error": "The card was declined.", "key": key})
        self.wait(BEFORE_BOOKING_S / 2)
        charge = {
            "id": f"ch_{uuid.uuid4().hex[:12]}",
            "key": key,
            "status": "succeeded",
            "merchant": merchant,
            "amount": body["amount"],
            "currency": body["currency"],
            "invoice": body["invoice"],
        }
        booked, new = self.ledger.enter_once(key, charge)
        self.wait(AFTER_BOOKING_S)
        if new and merchant == ANSWER_IS_LOST:
            return self._lose_the_answer(key)
        return self.answer(201 if new else 200, booked)

    def look_up(self, key: str | None) -> None:
        """What became of a charge or a refund, as far as the bank knows at this moment."""
        found = self.ledger.find(key)
        if self.refunds or (found and "refund_of" in found):
            return self._look_up_refund(key, found)
        age = (time.time() - found["entered_at"]) / self.server.pace - AFTER_BOOKING_S if found else 0.0
        if found and found["merchant"] == ANSWER_IS_LOST and age < NOT_FOUND_UNTIL_S:
            early = age < OUT_OF_ORDER_S
            return self.answer(
                503 if early else 404, {"error": "Out of order." if early else "Nothing found."}
            )
        return super().look_up(key)

    def _look_up_refund(self, key: str | None, found: Json | None) -> None:
        mine = found is not None and ("refund_of" in found) == self.refunds
        return super().look_up(key if mine else None)

    def _lose_the_answer(self, key: str | None) -> None:
        self.ledger.note("answer_lost", key)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    serve(Bank)

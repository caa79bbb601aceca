"""The demo's bank. A charge takes about seven seconds, so that Stop can be pressed while it is in flight.

POST /charges  {"merchant", "amount", "currency", "invoice"}, header Idempotency-Key: 201, or 200 for a known
key GET  /charges?key=K   the charge, or 404 · GET /ledger   every charge that was booked

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
# After a lost answer the bank's look-up is out of order, then finds nothing, then finds the charge.
OUT_OF_ORDER_S = 20.0
NOT_FOUND_UNTIL_S = 60.0


class Bank(Handler):
    """Books a charge once per key."""

    def receive(self, key: str | None, body: Json) -> None:
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
        """What became of a charge, as far as the bank knows at this moment."""
        found = self.ledger.find(key)
        age = (time.time() - found["entered_at"]) / self.server.pace - AFTER_BOOKING_S if found else 0.0
        if found and found["merchant"] == ANSWER_IS_LOST and age < NOT_FOUND_UNTIL_S:
            early = age < OUT_OF_ORDER_S
            return self.answer(
                503 if early else 404, {"error": "Out of order." if early else "Nothing found."}
            )
        return super().look_up(key)

    def _lose_the_answer(self, key: str | None) -> None:
        self.ledger.note("answer_lost", key)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    serve(Bank)

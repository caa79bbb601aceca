"""The demo's mailer. It hands nothing over to anybody: a mail is a line in its ledger.

POST /mails  {"to", "subject", "text"}, header Idempotency-Key: 201, or 200 for a known key
GET  /mails?key=K   the mail, or 404 · GET /ledger   every mail that was accepted
"""

from __future__ import annotations

import uuid

from dashboard.demo.outside import Handler, Json, serve

TAKES_S = 1.0


class Mailer(Handler):
    """Accepts a mail once per key."""

    def receive(self, key: str | None, body: Json) -> None:
        """Accept and answer."""
        self.wait(TAKES_S)
        mail = {"id": f"ml_{uuid.uuid4().hex[:12]}", "key": key, "status": "accepted"}
        accepted, new = self.ledger.enter_once(key, mail | {"to": body["to"], "subject": body["subject"]})
        self.answer(201 if new else 200, accepted)


if __name__ == "__main__":
    serve(Mailer)

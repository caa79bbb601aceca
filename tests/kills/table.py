"""What a kill leaves behind and how it ends, written by hand from the contract: never computed.

Each line is one order: who was killed where, and with which kind of look-up its effect came.
plain: the bank can be asked · fencing: and refuses for good what it was asked for · blind: it can't be asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.kills.rows import Stands

End = tuple[str, str, str, str]  # effect, step, run, outcome of the report

NOTHING: End = ("", "WITHHELD", "CANCELLED", "stopped before effect")
NEVER: End = ("NOT_STARTED", "WITHHELD", "CANCELLED", "stopped before effect")
REFUSED: End = ("NOT_APPLIED", "FAILED", "CANCELLED", "stopped after safe settlement")
UNSURE: End = ("UNKNOWN", "UNKNOWN", "UNKNOWN", "awaiting verification")
BOOKED: End = ("CONFIRMED", "SUCCEEDED", "CANCELLED", "partially completed")
HALF_DONE: End = ("CONFIRMED", "PARTIAL", "CANCELLED", "partially completed")
THOUGHT: End = ("", "FAILED", "CANCELLED", "stopped before effect")


@dataclass(frozen=True)
class Case:
    """after: step, effect and permit when the process was gone. sends: requests that reached the bank.

    listed: how many permits the stop lists.
    """

    point: str
    kind: str
    after: tuple[str, str, str]
    sends: int
    listed: int
    end: End

    @property
    def order(self) -> str:
        """Its run key and effect key."""
        return f"{self.point}-{self.kind}"


OPEN = ("DISPATCHED", "DISPATCHED", "OPEN")
DONE = ("SUCCEEDED", "CONFIRMED", "REPORTED")

AGENT = (
    Case("claimed", "plain", ("CLAIMED", "", ""), 0, 0, NOTHING),
    Case("not-asked", "plain", ("CLAIMED", "", ""), 0, 0, NOTHING),
    Case("permitted", "plain", OPEN, 0, 1, UNSURE),
    Case("permitted", "fencing", OPEN, 0, 1, REFUSED),
    Case("looked", "plain", OPEN, 0, 1, UNSURE),
    Case("looked", "fencing", OPEN, 0, 1, REFUSED),
    Case("sent", "plain", OPEN, 1, 1, BOOKED),
    Case("sent", "fencing", OPEN, 1, 1, BOOKED),
    Case("sent", "blind", OPEN, 1, 1, UNSURE),
    Case("answered", "plain", OPEN, 1, 1, BOOKED),
    Case("recorded", "plain", DONE, 1, 0, BOOKED),
    Case("recorded-in-step", "plain", ("DISPATCHED", "CONFIRMED", "REPORTED"), 1, 0, HALF_DONE),
    Case("thinking", "plain", ("DISPATCHED", "", "OPEN"), 0, 1, THOUGHT),
)

EXECUTOR = (
    Case("claimed", "plain", ("CLAIMED", "DECLARED", ""), 0, 0, NEVER),
    Case("in-transaction", "plain", ("CLAIMED", "DECLARED", ""), 0, 0, NEVER),
    Case("committed", "plain", OPEN, 0, 1, UNSURE),
    Case("committed", "fencing", OPEN, 0, 1, REFUSED),
    Case("looked", "plain", OPEN, 0, 1, UNSURE),
    Case("looked", "fencing", OPEN, 0, 1, REFUSED),
    Case("sent", "plain", OPEN, 1, 1, BOOKED),
    Case("sent", "blind", OPEN, 1, 1, UNSURE),
    Case("answered", "plain", OPEN, 1, 1, BOOKED),
    Case("recording", "fencing", OPEN, 1, 1, BOOKED),
    Case("recorded", "plain", DONE, 1, 0, BOOKED),
)

# The same executor dies, and nobody stops the run: what was not dispatched is sent by the next one, once.
GOES_ON = (
    Case(
        "claimed-goes-on",
        "plain",
        ("CLAIMED", "DECLARED", ""),
        1,
        0,
        ("CONFIRMED", "SUCCEEDED", "ACTIVE", ""),
    ),
    Case("committed-goes-on", "plain", OPEN, 0, 0, ("UNKNOWN", "UNKNOWN", "ACTIVE", "")),
    Case("committed-goes-on", "fencing", OPEN, 0, 0, ("NOT_APPLIED", "FAILED", "ACTIVE", "")),
    Case("sent-goes-on", "plain", OPEN, 1, 0, ("CONFIRMED", "SUCCEEDED", "ACTIVE", "")),
)

# Not killed but frozen, and thawed after stop and drain. `after` is how the rows stand before the thaw.
TAKEN_BACK: End = ("NOT_STARTED", "WITHHELD", "CANCELLED", "stopped after safe settlement")
GIVEN_UP = ("UNKNOWN", "UNKNOWN", "LOST")

FROZEN = (
    Case("before-look", "plain", OPEN, 0, 1, TAKEN_BACK),
    Case("before-look-for-long", "plain", GIVEN_UP, 0, 1, REFUSED),
    Case("after-look", "plain", GIVEN_UP, 1, 1, BOOKED),
    Case("after-look", "fencing", ("FAILED", "NOT_APPLIED", "LOST"), 1, 1, REFUSED),
)

# The server is killed; what was asked is repeated to the next one. `after` is how the rows stood then.
PAID: End = ("CONFIRMED", "SUCCEEDED", "COMPLETED", "completed")

SERVER = (
    Case("permit-in-transaction", "plain", ("", "", ""), 1, 0, PAID),
    Case("permit-committed", "plain", OPEN, 1, 0, PAID),
    Case("look", "plain", OPEN, 1, 0, PAID),
    Case("report-in-transaction", "plain", OPEN, 1, 0, PAID),
    Case("report-committed", "plain", DONE, 1, 0, PAID),
    Case("permit-nobody-heard-of", "plain", OPEN, 0, 1, UNSURE),
    Case("permit-nobody-heard-of", "fencing", OPEN, 0, 1, REFUSED),
    Case("stop-in-transaction", "plain", OPEN, 1, 1, BOOKED),
    Case("stop-committed", "plain", OPEN, 1, 1, BOOKED),
    Case("admission-committed", "plain", ("", "", ""), 0, 0, ("", "", "CANCELLED", "stopped before effect")),
)

# Agents that are gone for good, a stop, and controllers that die in the middle of the drain.
DRAIN = (
    Case("sent", "plain", OPEN, 1, 1, BOOKED),
    Case("sent", "fencing", OPEN, 1, 1, BOOKED),
    Case("sent", "blind", OPEN, 1, 1, UNSURE),
    Case("unsent", "plain", OPEN, 0, 1, UNSURE),
    Case("unsent", "fencing", OPEN, 0, 1, REFUSED),
    Case("unsent", "blind", OPEN, 0, 1, UNSURE),
)


def differences(case: Case, sends: int, end: Stands) -> list[str]:
    """Where an order ended otherwise than its line says."""
    found = {"sends": sends, "listed": end.listed, "end": end.end}
    wanted = {"sends": case.sends, "listed": case.listed, "end": case.end}
    return [
        f"{case.order}: {name} is {found[name]}, not {wanted[name]}"
        for name in found
        if found[name] != wanted[name]
    ]

"""The client of Allstop, for agent processes. It imports nothing of the server.

from allstop import Client

with Client().run("invoice-batch-0142") as run:
    charge = run.effect(key="charge:0142", kind="bank.charge", none_because="the bank offers no refund")
    charge.send(bank.charge, order, idempotency_key=charge.key)
"""

from allstop.client import Client, StopNotRecorded
from allstop.effect import Effect
from allstop.errors import (
    GateUnavailable,
    LostClaim,
    MustWait,
    NeverSent,
    NotApplied,
    NotApproved,
    NotQuiet,
    PermitExpired,
    Queued,
    Refused,
    Rejected,
    ReportNotDelivered,
    RetryNotDue,
    RetryRefused,
    RunEnded,
    StaleVersion,
    StepEnded,
    StopRequested,
    WaitingForApproval,
    Withheld,
)
from allstop.look_ups import LookUp, Seen
from allstop.outcome import Outcome, http_outcome
from allstop.run import Run
from allstop.step import Step
from allstop.turn import Turn

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Effect",
    "GateUnavailable",
    "LookUp",
    "LostClaim",
    "MustWait",
    "NeverSent",
    "NotApplied",
    "NotApproved",
    "NotQuiet",
    "Outcome",
    "PermitExpired",
    "Queued",
    "Refused",
    "Rejected",
    "ReportNotDelivered",
    "RetryNotDue",
    "RetryRefused",
    "Run",
    "RunEnded",
    "Seen",
    "StaleVersion",
    "Step",
    "StepEnded",
    "StopNotRecorded",
    "StopRequested",
    "Turn",
    "WaitingForApproval",
    "Withheld",
    "http_outcome",
]

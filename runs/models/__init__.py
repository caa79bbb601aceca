"""The tables of what may start. Begin with run.py: each decorated method is an arrow."""

from .evidence import Evidence, EvidencePayload, Seal
from .people import Membership, Role, Token, User
from .restore import Restore
from .rules import RulesRow
from .run import (
    BUSY,
    FINAL,
    INCONSEQUENTIAL,
    NOT_DISPATCHED,
    STOPPING,
    Boundary,
    OperationClass,
    Permit,
    PermitState,
    Refusal,
    Run,
    RunStatus,
    Step,
    StepStatus,
)
from .scope import Gate, Policy, Session, StopCounter, Workspace
from .stop import IdempotencyRecord, InFlight, Mode, Press, StopRequest
from .turn import Turn
from .worker import POINTS, Receipt, Worker

__all__ = [
    "BUSY",
    "FINAL",
    "INCONSEQUENTIAL",
    "NOT_DISPATCHED",
    "POINTS",
    "STOPPING",
    "Boundary",
    "Evidence",
    "EvidencePayload",
    "Gate",
    "IdempotencyRecord",
    "InFlight",
    "Membership",
    "Mode",
    "OperationClass",
    "Permit",
    "PermitState",
    "Policy",
    "Press",
    "Receipt",
    "Refusal",
    "Restore",
    "Role",
    "RulesRow",
    "Run",
    "RunStatus",
    "Seal",
    "Session",
    "Step",
    "StepStatus",
    "StopCounter",
    "StopRequest",
    "Token",
    "Turn",
    "User",
    "Worker",
    "Workspace",
]

"""The tables of what may start. Begin with run.py: each decorated method is an arrow."""

from .audit import AuditNote, Installation
from .evidence import Evidence, EvidencePayload, Seal
from .halt import Halt
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
from .schedule import SCHEDULABLE, ScheduledStop
from .scope import Gate, Policy, Reach, Session, StopCounter, Workspace
from .stop import (
    STANDING,
    IdempotencyRecord,
    InFlight,
    Mode,
    Press,
    Release,
    Result,
    ScopeKind,
    StopPart,
    StopRequest,
    WideStop,
    WouldRefuse,
)
from .turn import Turn
from .worker import POINTS, Receipt, Worker

__all__ = [
    "BUSY",
    "FINAL",
    "INCONSEQUENTIAL",
    "NOT_DISPATCHED",
    "POINTS",
    "SCHEDULABLE",
    "STANDING",
    "STOPPING",
    "AuditNote",
    "Boundary",
    "Evidence",
    "EvidencePayload",
    "Gate",
    "Halt",
    "IdempotencyRecord",
    "InFlight",
    "Installation",
    "Membership",
    "Mode",
    "OperationClass",
    "Permit",
    "PermitState",
    "Policy",
    "Press",
    "Reach",
    "Receipt",
    "Refusal",
    "Release",
    "Restore",
    "Result",
    "Role",
    "RulesRow",
    "Run",
    "RunStatus",
    "ScheduledStop",
    "ScopeKind",
    "Seal",
    "Session",
    "Step",
    "StepStatus",
    "StopCounter",
    "StopPart",
    "StopRequest",
    "Token",
    "Turn",
    "User",
    "WideStop",
    "Worker",
    "Workspace",
    "WouldRefuse",
]

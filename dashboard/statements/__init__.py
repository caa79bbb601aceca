"""Statements: what this installation says, signed, of the heads of its evidence.

A chain of hashes shows an edit only to somebody who knows one of its heads from elsewhere. A statement
names heads, is signed with a key that is not in the database, and is meant to be kept by others.

`of_report(report)` is called where a report version is inserted, in the same transaction. `due_days()` and
`make_day(workspace_id)` make the daily ones. A pack has a statement of its own (`dashboard.packs`), which is
not kept here. `told(statement)` is one as people take it away; `Signed.says` is a sentence about it.
"""

from .making import due_days, make_day, of_report
from .models import SealKey, Statement, StatementKind
from .signing import Signed, sign, told

__all__ = [
    "SealKey",
    "Signed",
    "Statement",
    "StatementKind",
    "due_days",
    "make_day",
    "of_report",
    "sign",
    "told",
]

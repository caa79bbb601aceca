"""The report: five questions about one run, answered from its rows, each claim with its lines.

Read model of page and JSON. What a caller needs:

- `load(run_id, version=None, most=None) -> Report`: an issued version as it was frozen, or the draft
  when none was issued yet. A page passes `most` (rows of manifest and log that it shows): 4 queries for
  an issued version, 22 for a draft (two or three more where something was compensated), whatever the size.
- `read(run_id, version=None) -> dict`: the same as JSON values, complete, for the API and the JSON link.
- `build(run_id, most=None) -> Report`: the draft of now, also when versions were issued.
- `since(run_id, report.upto_seq) -> list[str]`: what came after a version ("New since it was issued").
- `newest(run_id)`: the number of the newest issued version.
- `issue(run_id)`: the verb; `due()`: who waits for it. Called by `dashboard.tasks`.
- `signing.sign_off(…)`: a person's word that they read a version. `pdf.pdf(report)`: the document as PDF.

None of these asks who is reading: find the run with `access.find_run` first. `NotFound` is raised for
an absent run or version.

A page shows, in this order: `report.stamp` (draft or not final: always visible), `report.term` and
`report.sentence`, the facts of `report.stop` (`report.names[actor]` is the name behind an id; `note` and
other text of people still wants the `clean` filter), `known` of `of` as of `as_of`, then `sections`. A
section is never empty. A claim is `lead` (bold), `text`, `stress` (bold) and one link per number in
`lines`; `anchor` is its id on the page; `effect` is the id of its effect's row on the run page; `action`
(propose · review · lift) and `about` say what a person may do about it. Each
table below the sections has `total`, `rows` and `says`; write `says` out whenever it is not empty.
`report.run.drill` wants a mark that can't be overlooked. `replaced`, `newest`, `replaces` and `versions`
serve the banner and the list beside it; `changes` is what it says that the version before did not, and
`signatures` who has read this one.

The digest is the SHA-256 of the canonical JSON (`runs.evidence.canonical`) of `document(report)`: all
fields but id, digest, names, versions, sign-offs and statement. Names are left out because they live in a
person's row, where they can be erased; the frozen document holds ids.
"""

from .building import build
from .frozen import document
from .model import (
    Claim,
    FlightRow,
    LateRow,
    LineRow,
    ManifestRow,
    RefusalRow,
    RepairRow,
    Report,
    Section,
    StopFacts,
    VersionRow,
    WorkerRow,
)
from .versions import RESTING, due, is_genuine, issue, load, newest, read, since

__all__ = [
    "RESTING",
    "Claim",
    "FlightRow",
    "LateRow",
    "LineRow",
    "ManifestRow",
    "RefusalRow",
    "RepairRow",
    "Report",
    "Section",
    "StopFacts",
    "VersionRow",
    "WorkerRow",
    "build",
    "document",
    "due",
    "is_genuine",
    "issue",
    "load",
    "newest",
    "read",
    "since",
]

"""What a rule forbids the schema forbids too: triggers for PostgreSQL and SQLite.

Each rule is (name, table, event, condition on NEW/OLD in plain SQL, sentence). The condition is
true when the write must be refused, and is written once for both databases, unless it asks JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.migrations import RunPython

FINAL = "('CANCELLED','COMPLETED','FAILED','ABANDONED')"


@dataclass(frozen=True)
class Rule:
    """One trigger: refuse `event` on `table` when `when` holds; on SQLite `on_sqlite`, where it is given."""

    name: str
    table: str
    event: str
    when: str
    sentence: str
    on_sqlite: str = ""


def append_only(table: str) -> list[Rule]:
    """No row of this table is ever changed or deleted."""
    return [
        Rule(f"{table}_kept", table, "UPDATE", "1=1", f"{table} is append-only"),
        Rule(f"{table}_stays", table, "DELETE", "1=1", f"{table} is append-only"),
    ]


def set_once(*columns: str) -> str:
    """True when one of these columns has a value and would get another."""
    return " OR ".join(f"(OLD.{c} IS NOT NULL AND (NEW.{c} IS NULL OR NEW.{c} <> OLD.{c}))" for c in columns)


RULES: list[Rule] = [
    Rule(
        "run_version_never_falls",
        "runs_run",
        "UPDATE",
        "NEW.cancel_version < OLD.cancel_version",
        "cancel_version never falls",
    ),
    Rule(
        "run_final_is_final",
        "runs_run",
        "UPDATE",
        f"OLD.status IN {FINAL} AND NEW.status <> OLD.status",
        "a final status never changes",
    ),
    Rule(
        "run_starts_by_decision",
        "runs_run",
        "UPDATE",
        "NEW.status = 'ACTIVE' AND OLD.status <> 'ACTIVE'"
        " AND (OLD.status <> 'PAUSED' OR NEW.cancel_version <= OLD.cancel_version)",
        "only a resume with a new version makes a run ACTIVE",
    ),
    Rule(
        "run_behind_a_shut_gate",
        "runs_run",
        "INSERT",
        "NOT EXISTS (SELECT 1 FROM runs_workspace w WHERE w.id = NEW.workspace_id"
        " AND w.gate = 'OPEN' AND w.epoch = NEW.admitted_epoch)"
        " OR (NEW.session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs_session s"
        " WHERE s.id = NEW.session_id AND s.gate = 'OPEN' AND s.epoch = NEW.session_epoch))",
        "no run is admitted past a shut gate",
    ),
    Rule(
        "run_parent_stays",
        "runs_run",
        "UPDATE",
        "OLD.parent_id <> NEW.parent_id OR (OLD.parent_id IS NULL AND NEW.parent_id IS NOT NULL)"
        " OR (OLD.parent_id IS NOT NULL AND NEW.parent_id IS NULL)",
        "the parent of a run is fixed at its admission",
    ),
    Rule(
        "run_is_not_its_own_parent",
        "runs_run",
        "INSERT",
        "NEW.parent_id = NEW.id",
        "a run is not its own parent",
    ),
    Rule("run_stays", "runs_run", "DELETE", "1=1", "a run is never deleted; retention empties bodies"),
    *append_only("runs_evidence"),
    *append_only("runs_seal"),
    *append_only("runs_inflight"),
    Rule(
        "payload_only_emptied",
        "runs_evidencepayload",
        "UPDATE",
        "NEW.body <> '' OR NEW.removed_at IS NULL OR NEW.removed_under = ''"
        " OR NEW.stream <> OLD.stream OR NEW.seq <> OLD.seq",
        "a payload is only emptied, with the rule under which",
    ),
    Rule(
        "payload_stays",
        "runs_evidencepayload",
        "DELETE",
        "1=1",
        "a payload is emptied, never deleted",
    ),
    Rule(
        "stop_moments_stay",
        "runs_stoprequest",
        "UPDATE",
        "NEW.recorded_at <> OLD.recorded_at OR NEW.mode <> OLD.mode OR NEW.actor <> OLD.actor OR "
        + set_once(
            *("run_id", "gate_at", "fenced_at", "quiet_at", "timed_out_at", "closed_at"),
            *("superseded_by_id", "released_at"),
        ),
        "the moments of a stop request are set once",
    ),
    Rule("stop_stays", "runs_stoprequest", "DELETE", "1=1", "a stop request is never deleted"),
]


_SHUT_POLICY = (
    "EXISTS (SELECT 1 FROM runs_policy p WHERE p.workspace_id = NEW.workspace_id"
    " AND p.gate = 'SHUT' AND p.reach = 'runs' AND {matches})"
)
# Apart from RULES, which the second migration puts in force: a policy had no reach then.
POLICY_RULES: list[Rule] = [
    Rule(
        "run_under_a_shut_policy",
        "runs_run",
        "INSERT",
        _SHUT_POLICY.format(matches="NEW.labels @> (p.match -> 'labels')"),
        "no run is admitted under a policy whose gate is shut",
        on_sqlite=_SHUT_POLICY.format(
            matches="NOT EXISTS (SELECT 1 FROM json_each(p.match, '$.labels') w WHERE NOT EXISTS"
            " (SELECT 1 FROM json_each(NEW.labels) l WHERE l.key = w.key AND l.value = w.value))"
        ),
    ),
]

# Apart from RULES for the same reason: the column came later.
ARRIVAL_RULES: list[Rule] = [
    Rule(
        "stop_arrival_stays",
        "runs_stoprequest",
        "UPDATE",
        set_once("arrived_at") + " OR (OLD.arrived_at IS NULL AND NEW.arrived_at IS NOT NULL)",
        "when a press arrived is kept with its stop, or never",
    ),
]


def create(rule: Rule, vendor: str) -> list[str]:
    """The statements that put a rule in force."""
    if vendor == "sqlite":
        return [
            f"CREATE TRIGGER {rule.name} BEFORE {rule.event} ON {rule.table}"
            f" FOR EACH ROW WHEN {rule.on_sqlite or rule.when}"
            f" BEGIN SELECT RAISE(ABORT, '{rule.sentence}'); END"
        ]
    row = "OLD" if rule.event == "DELETE" else "NEW"
    return [
        f"CREATE FUNCTION {rule.name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF {rule.when} THEN RAISE EXCEPTION '{rule.sentence}'"
        f" USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN {row}; END $$",
        f"CREATE TRIGGER {rule.name} BEFORE {rule.event} ON {rule.table}"
        f" FOR EACH ROW EXECUTE FUNCTION {rule.name}()",
    ]


def drop(rule: Rule, vendor: str) -> list[str]:
    """The statements that take a rule away (migrations backwards, tests' clean-up)."""
    if vendor == "sqlite":
        return [f"DROP TRIGGER IF EXISTS {rule.name}"]
    return [
        f"DROP TRIGGER IF EXISTS {rule.name} ON {rule.table}",
        f"DROP FUNCTION IF EXISTS {rule.name}()",
    ]


def in_force(rules: Sequence[Rule]) -> RunPython:
    """The migration that puts rules in force, also where one of this name was before; backwards, they go."""

    def forwards(apps: Any, schema_editor: Any) -> None:
        backwards(apps, schema_editor)
        _run(
            schema_editor, [text for rule in rules for text in create(rule, schema_editor.connection.vendor)]
        )

    def backwards(apps: Any, schema_editor: Any) -> None:
        _run(schema_editor, [text for rule in rules for text in drop(rule, schema_editor.connection.vendor)])

    return RunPython(forwards, backwards)


def _run(schema_editor: Any, statements: list[str]) -> None:
    for statement in statements:
        schema_editor.execute(statement, params=None)

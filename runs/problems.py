"""What the API says when it does not do what was asked: RFC 9457 problem documents.

Every document names its type, says what happened and what to do. docs/problems.md lists the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from django.http import HttpResponse

from .access import NotAllowed, NotFound
from .admission import RunKeyReused
from .children import TooDeep
from .evidence import canonical
from .guard import (
    BLIND,
    FORGOTTEN,
    LOST,
    NOT_APPROVED,
    NOT_DUE,
    STALE,
    STOPPED,
    UNVERIFIED,
    USED_UP,
    WHAT_TO_DO,
    Refusal,
)

# Type name: (HTTP status, title). The wire's type is /problems/<name>.
PROBLEMS: dict[str, tuple[int, str]] = {
    "account-in-use": (409, "A kind names this account"),
    "already-reported": (409, "This permit was reported otherwise before"),
    "cannot-be-asked": (409, "Nobody can be asked about that now"),
    "blind-retry": (409, "It may have happened"),
    "delivery-key-reused": (422, "This delivery key belongs to another message"),
    "effect-key-reused": (422, "This effect key belongs to another effect"),
    "gate-not-shut": (409, "The gate is open"),
    "endpoint-is-off": (409, "This endpoint is off"),
    "idempotency-key-in-progress": (409, "A request with this key is still in progress"),
    "idempotency-key-invalid": (400, "The Idempotency-Key can't be used"),
    "idempotency-key-missing": (400, "The Idempotency-Key is missing"),
    "idempotency-key-reused": (422, "This Idempotency-Key belongs to another request"),
    "internal-error": (500, "We could not answer"),
    "invalid-request": (422, "The request has fields that can't be used"),
    "lost-claim": (409, "This claim is not yours any more"),
    "malformed-body": (400, "The body can't be read"),
    "method-not-allowed": (405, "This address does not take that method"),
    "no-pdf": (503, "No PDF was made"),
    "no-plan": (422, "A plan is missing"),
    "no-scope-named": (422, "Your stop was NOT recorded: it does not say of what"),
    "no-run-named": (422, "Your stop was NOT recorded: it names no run"),
    "no-turn": (409, "This look-up is not yours"),
    "not-allowed": (403, "This token may not do that"),
    "not-approved": (409, "People did not approve it"),
    "not-found": (404, "There is nothing here"),
    "not-quiet": (409, "Something is still open"),
    "not-recorded": (503, "Your stop is not confirmed"),
    "nothing-dispatched": (409, "This step crossed no boundary"),
    "nothing-to-hand-over": (409, "This message is not yours to hand over"),
    "nothing-to-resume": (409, "There is nothing to resume"),
    "nothing-to-retry": (409, "There is nothing to try again"),
    "not-standing": (409, "This stop holds nothing"),
    "policy-name-taken": (422, "This name belongs to another policy"),
    "not-resumed": (409, "The run was not resumed"),
    "not-proposed": (409, "No compensation was proposed"),
    "people-only": (403, "People decide that"),
    "other-stop": (409, "Another stop holds the gate"),
    "retries-used-up": (409, "It was tried as often as it may be"),
    "retry-not-due": (409, "The retry is not due yet"),
    "retry-too-old": (409, "The provider may have forgotten this key"),
    "retry-unverified": (409, "No provider says that it did not happen"),
    "rules-changed": (409, "The rules were changed meanwhile"),
    "run-key-reused": (422, "This run key belongs to another run"),
    "stale-version": (409, "The run goes on at another version"),
    "scheduled-stop-ended": (409, "It was pressed or withdrawn before"),
    "same-person": (409, "A second person has to grant it"),
    "still-fencing": (409, "Its runs are still being stopped"),
    "stopped": (409, "The gate is shut"),
    "store-unavailable": (503, "The store did not answer"),
    "token-missing": (401, "A token is needed"),
    "token-refused": (401, "This token is not accepted"),
    "too-deep": (422, "Too many runs stand above this one"),
    "too-large": (413, "The body is too large"),
    "too-many-accounts": (409, "There are too many accounts"),
    "too-many-endpoints": (409, "There are too many endpoints"),
    "too-many-failed-tokens": (429, "Too many tokens that are not accepted"),
    "too-many-refused-webhooks": (429, "Too many webhooks that are not accepted"),
    "too-many-requests": (429, "Too many requests"),
    "unsettled": (409, "A permit of this step is still open"),
    "webhook-refused": (401, "This webhook is not accepted"),
}
MEDIA_TYPE = "application/problem+json"
REFUSED = {
    STOPPED: "stopped",
    STALE: "stale-version",
    LOST: "lost-claim",
    BLIND: "blind-retry",
    UNVERIFIED: "retry-unverified",
    USED_UP: "retries-used-up",
    FORGOTTEN: "retry-too-old",
    NOT_DUE: "retry-not-due",
    NOT_APPROVED: "not-approved",
}
SCOPES = {
    "read": "runs:read",
    "write": "runs:write",
    "stop": "stop:write",
    "resume": "resume:write",
    "kinds": "kinds:write",
    "rules": "rules:write",
    "notices": "notices:write",
    "release": "gate:write",
}
# Errors that carry their sentence as a docstring; the rooms above add their own.
NAMES: dict[type[Exception], str] = {RunKeyReused: "run-key-reused", TooDeep: "too-deep"}


class Problem(Exception):
    """A request ends here. `name` is a key of PROBLEMS; `members` stand beside the five of RFC 9457."""

    def __init__(
        self, name: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(name)
        self.name, self.detail, self.members = name, detail, members
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        return PROBLEMS[self.name][0]

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object that is sent."""
        status, title = PROBLEMS[self.name]
        told = {"type": f"/problems/{self.name}", "title": title, "status": status, "detail": self.detail}
        return {**told, **self.members}


def respond(problem: Problem) -> HttpResponse:
    """The problem as an HTTP answer."""
    text = canonical(problem.document)
    return HttpResponse(text, MEDIA_TYPE, problem.status, headers=problem.headers)


def not_found() -> Problem:
    """One body for what is absent and for what belongs to others."""
    return Problem("not-found", "Nothing that you may see has this address. Check the id and the token.")


def invalid(field: str, message: str) -> Problem:
    """One field that can't be used."""
    return invalid_fields([{"field": field, "message": message}])


def invalid_fields(errors: list[dict[str, str]]) -> Problem:
    """The fields that can't be used, each with its sentence."""
    first = errors[0]
    detail = f"{first['field']}: {first['message']}. Nothing was changed; correct the fields in `errors`."
    return Problem("invalid-request", detail, errors=errors)


def refused(refusal: Refusal) -> Problem:
    """The gate said no: who said it, both versions, and what the worker should do."""
    told = f"Refused at {refusal.boundary}; the run is {refusal.run_status}." if refusal.run_status else ""
    return Problem(
        REFUSED[refusal.reason],
        f"{told} {refusal.what_to_do}".strip(),
        boundary=refusal.boundary,
        carried_version=refusal.carried_version,
        current_version=refusal.current_version,
        run_status=refusal.run_status,
        stop_id=refusal.stop_id,
        step_id=refusal.step_id,
        effect_key=refusal.effect_key,
        what_to_do=refusal.what_to_do,
        refusal_count=refusal.count,
        scope=refusal.scope or None,
        run_goes_on=refusal.run_goes_on,
    )


def of(error: Exception) -> Problem | None:
    """The problem for an error of a verb, or None when it is none of ours."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NotFound):
        return not_found()
    if isinstance(error, NotAllowed):
        return not_allowed(SCOPES.get(str(error.args[0]), "") if error.args else "")
    name = next((NAMES[cls] for cls in type(error).__mro__ if cls in NAMES), None)
    if name is None:
        return None
    problem = Problem(name, " ".join(cleandoc(type(error).__doc__ or "").split()))
    if name == "lost-claim":
        problem.members["what_to_do"] = WHAT_TO_DO[LOST]
    return problem


def not_allowed(scope: str = "") -> Problem:
    """The token is known here, but not for that."""
    need = f"It needs the scope {scope}" if scope else "It is bound to one run, or only a person may do this"
    return Problem("not-allowed", f"{need}. Ask an admin for another token; nothing was changed.")

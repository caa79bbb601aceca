"""Each promise has a test, and the document says which."""

from __future__ import annotations

from tests import invariants
from tests.invariants import SAYS, Proof, all_proofs, number, table, without_proof


def test_there_are_thirty_promises_and_each_is_proved_by_a_test_on_the_databases_that_it_needs() -> None:
    found = all_proofs()
    assert sorted(SAYS, key=number) == [f"I{n}" for n in range(1, 31)]
    assert {proof.invariant for proof in found} <= set(SAYS)
    assert without_proof(found) == []
    for name in SAYS:
        where = {proof.where for proof in found if proof.invariant == name}
        assert "both" in where or where >= {"sqlite", "postgresql"}, name


def test_the_document_says_what_the_marks_say() -> None:
    assert invariants.DOCUMENT.read_text() == table(all_proofs()), "run: manage.py invariants --write"


def test_a_promise_without_a_test_is_found_and_marks_are_read_where_they_stand() -> None:
    folder = invariants.ROOT / "tests" / "model"
    assert without_proof([Proof("I1", "", "", "both")]) == [f"I{n}" for n in range(2, 31)]
    told = {proof.test: proof.where for proof in invariants.proofs_in(folder / "test_spin.py")}
    assert told["test_no_state_after_a_restore_breaks_a_promise"] == "none"
    kills = list(invariants.proofs_in(invariants.ROOT / "tests" / "kills" / "test_storm.py"))
    assert ("I30", "both") in {(proof.invariant, proof.where) for proof in kills}

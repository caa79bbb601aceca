"""The people of a workspace: read by every member, changed by admins, unknown to anybody else."""

from __future__ import annotations

import pytest

from runs import access
from runs.models import Membership, User
from tests.dashboard.scenes import an_admin, browser, secret_in, text_of
from tests.worlds import World, a_person

pytestmark = pytest.mark.django_db(transaction=True)
NEW = {"email": "frank@example.org", "name": "Frank", "role": "operator"}


@pytest.fixture
def world() -> World:
    return World()


def test_an_admin_adds_a_person_whose_password_is_shown_once_and_only_good_for_choosing_another(
    world: World,
) -> None:
    erin = browser(an_admin(world))
    answer = erin.post("/people", NEW)
    assert answer.status_code == 201
    assert "no-store" in answer["Cache-Control"]
    password = secret_in(answer.content.decode())
    assert password not in erin.get("/people").content.decode()
    assert "frank@example.org" in erin.get("/people").content.decode()

    frank = browser()
    frank.post("/sign-in", {"login": "frank@example.org", "password": password})
    assert frank.get("/runs/")["Location"] == "/password?next=%2Fruns%2F"
    assert frank.get("/runs/", headers={"HX-Request": "true"}).status_code == 401
    assert "Choose your own password" in frank.get("/password").content.decode()
    weak = frank.post("/password", {"new_password1": "frank", "new_password2": "frank"})
    assert weak.status_code == 422
    assert "Nothing was changed." in weak.content.decode()
    own = {"new_password1": "a long one of his own", "new_password2": "a long one of his own"}
    assert frank.post("/password?next=/runs/", own)["Location"] == "/runs/"
    assert frank.get("/runs/").status_code == 200
    assert not User.objects.get(email="frank@example.org").check_password(password)


def test_a_first_password_does_not_keep_anybody_from_stopping_a_run(world: World) -> None:
    run, erin, frank = world.run(), browser(an_admin(world)), browser()
    password = secret_in(erin.post("/people", NEW).content.decode())
    frank.post("/sign-in", {"login": "frank@example.org", "password": password})
    assert frank.post(f"/runs/{run.pk}/stop", {"key": "k"})["Location"] == f"/runs/{run.pk}/"


@pytest.mark.invariant("I29")
def test_a_password_is_changed_by_who_knows_the_old_one_and_ends_other_sign_ins(world: World) -> None:
    here, there = browser(world.alice), browser(world.alice)
    form = {
        "old_password": "wrong",
        "new_password1": "quite another one",
        "new_password2": "quite another one",
    }
    assert here.post("/password", form).status_code == 422
    assert (
        here.post("/password?next=//evil.example/", form | {"old_password": "a long password"})["Location"]
        == "/"
    )
    assert here.get("/runs/").status_code == 200
    assert there.get("/runs/").status_code == 302


def test_an_admin_changes_a_role_and_removes_a_person(world: World) -> None:
    assert world.dana.user is not None
    erin, dana = browser(an_admin(world)), world.dana.user.pk
    told = erin.post(f"/people/{dana}/role", {"role": "operator"}, follow=True).content.decode()
    assert "Dana is operator from now on." in told
    page = text_of(erin.get(f"/people/{dana}/remove").content.decode())
    assert "Remove Dana?" in page
    assert "What Dana did stays on record." in page
    assert access.can_read_workspace(world.dana.user, world.workspace.pk)  # reading it removes nobody
    told = erin.post(f"/people/{dana}/remove", follow=True).content.decode()
    assert "Dana is no member any more." in told
    assert browser(world.dana).get("/people").status_code == 404


def test_the_last_admin_is_told_why_nothing_was_changed(world: World) -> None:
    admin = an_admin(world)
    assert admin.user is not None
    erin = browser(admin)
    for path, form in (("role", {"role": "viewer"}), ("remove", {})):
        html = erin.post(f"/people/{admin.user.pk}/{path}", form, follow=True).content.decode()
        assert 'role="alert">Nothing was changed. A workspace keeps at least one admin' in html
    assert Membership.objects.filter(user=admin.user, role="admin").exists()


def test_an_admin_who_leaves_is_led_out(world: World) -> None:
    admin = an_admin(world)
    a_person("frank", world.workspace, "admin")
    assert admin.user is not None
    assert browser(admin).post(f"/people/{admin.user.pk}/remove")["Location"] == "/"


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"email": "<b>@x", "role": "viewer"}, "This is not an e-mail address."),
        ({"email": "x@example.org", "role": "root"}, "There is no such role."),
        ({}, "This is not an e-mail address."),
    ],
)
def test_what_can_not_be_added_is_said_and_what_was_typed_is_kept(
    world: World, form: dict[str, str], why: str
) -> None:
    before = User.objects.count()
    erin = browser(an_admin(world))
    answer = erin.post("/people", form)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert f'role="alert">Nobody was added. {why}' in html
    assert "<b>@x" not in html
    assert User.objects.count() == before + 1  # Erin herself


@pytest.mark.parametrize("who", ["alice", "bob", "dana"])
def test_who_is_no_admin_reads_the_list_and_changes_nothing(world: World, who: str) -> None:
    client = browser(getattr(world, who))
    assert world.carol.user is not None
    carol = world.carol.user.pk
    html = client.get("/people").content.decode()
    assert "Only an admin of this workspace adds, changes and removes people." in html
    assert "Carol" in html
    for absent in ("<select", "Remove…", "Add the person"):
        assert absent not in html
    assert client.post("/people", NEW).status_code == 403
    assert client.post(f"/people/{carol}/role", {"role": "admin"}).status_code == 403
    assert client.get(f"/people/{carol}/remove").status_code == 403
    assert client.post(f"/people/{carol}/remove").status_code == 403
    assert Membership.objects.get(user=world.carol.user).role == "reviewer"


def test_a_superuser_who_is_a_member_of_nothing_comes_to_the_page_that_erases(world: World) -> None:
    root = User.objects.create_superuser(email="root@example.org", password="a long one of theirs")
    client = browser()
    client.force_login(root)
    assert world.carol.user is not None
    answer = client.get(f"/people/{world.carol.user.pk}/erase")
    assert answer.status_code == 200
    assert "Erase Carol?" in answer.content.decode()
    assert "too short to be looked for" not in answer.content.decode()
    User.objects.filter(pk=world.carol.user.pk).update(name="Caro")
    assert "“Caro” is too short to be looked for" in client.get(answer.request["PATH_INFO"]).content.decode()


def test_for_mallory_nobody_is_here(world: World) -> None:
    mallory = browser(world.mallory)
    assert world.dana.user is not None
    here = f"?workspace={world.workspace.slug}"
    for path in ("/people", f"/people/{world.dana.user.pk}/remove", f"/people/{world.dana.user.pk}/role"):
        assert mallory.post(path + here, {"role": "admin", **NEW}).status_code == 404
    for user_id in (world.dana.user.pk, 0, "absent", 2**70):
        assert mallory.get(f"/people/{user_id}/remove").status_code == 404
        assert mallory.post(f"/people/{user_id}/role", {"role": "admin"}).status_code == 404
    assert not Membership.objects.filter(workspace=world.workspace, user__email=NEW["email"]).exists()


def test_many_people_are_counted_and_found_by_name(world: World) -> None:
    made = User.objects.bulk_create(
        User(email=f"p{n}@example.org", name=f"Person {n:03}") for n in range(250)
    )
    Membership.objects.bulk_create(
        Membership(user=user, workspace=world.workspace, role="viewer") for user in made
    )
    dana = browser(world.dana)
    assert "200 of 254 people" in text_of(dana.get("/people").content.decode())
    found = text_of(dana.get("/people?q=person 249").content.decode())
    assert "Person 249" in found
    assert "1 person" in found

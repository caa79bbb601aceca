"""Django's admin for the people who run this installation: they manage who may come in.

Whatever a machine moves can be looked at here and changed nowhere: not even by a superuser. Evidence,
its bodies and its seals have composite keys, which the admin can't show; they stand on a run's own pages.
Secrets (digests, claim tokens, bodies) are on no page. The site is one of our own: what other packages
register for themselves is not on it.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from dashboard import words
from effects.models import Effect, Kind, Report
from runs import access, everywhere, people
from runs.access import Actor
from runs.models import (
    InFlight,
    Membership,
    Permit,
    Press,
    Refusal,
    Run,
    Session,
    Step,
    StopRequest,
    Token,
    User,
    Worker,
    Workspace,
)

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    PeopleAdmin = UserAdmin[User]
else:
    ModelAdmin, PeopleAdmin = admin.ModelAdmin, UserAdmin


class StaffSite(admin.AdminSite):
    """For staff. To everybody else who is signed in it does not exist; others are led to the one sign-in."""

    site_header = site_title = "Allstop installation"
    index_title = "Who may come in, and what is on record"
    enable_nav_sidebar = False

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        inner = super().admin_view(view, cacheable)

        @wraps(inner)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            if not self.has_permission(request):
                raise Http404
            answer: HttpResponseBase = inner(request, *args, **kwargs)
            return answer

        return guarded

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """There is one way to sign in, with its limits on guessing; it is not here."""
        return redirect_to_login(reverse(f"{self.name}:index"))


site = StaffSite(name="admin")


class ReadOnly(ModelAdmin):
    """Rows that only verbs write. Everything but looking is forbidden, to everyone."""

    actions = None
    list_per_page = 50
    show_full_result_count = False
    ordering = ["-pk"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Run, site=site)
class RunAdmin(ReadOnly):
    list_display = [
        "name",
        "key",
        "workspace",
        "status",
        "cancel_version",
        "admitted_at",
        "ended_at",
        "drill",
    ]
    list_filter = ["status", "drill", "workspace"]
    list_select_related = ["workspace"]
    search_fields = ["=id", "^key", "name"]


@admin.register(Step, site=site)
class StepAdmin(ReadOnly):
    list_display = ["name", "key", "run", "op_class", "status", "worker", "attempt", "lease_until"]
    list_filter = ["status", "op_class"]
    list_select_related = ["run"]
    search_fields = ["=id", "=run__id", "^key"]
    exclude = ["claim_token"]


@admin.register(Permit, site=site)
class PermitAdmin(ReadOnly):
    list_display = ["id", "run", "boundary", "effect_key", "seen_version", "worker", "state", "opened_at"]
    list_filter = ["state", "boundary"]
    list_select_related = ["run"]
    search_fields = ["=id", "=run__id", "^effect_key"]
    exclude = ["token"]


@admin.register(Effect, site=site)
class EffectAdmin(ReadOnly):
    list_display = ["title", "key", "run", "kind_name", "settlement", "ground", "attempt", "next_check_at"]
    list_filter = ["settlement", "op_class"]
    list_select_related = ["run"]
    search_fields = ["=id", "=run__id", "^key"]
    exclude = ["result"]


@admin.register(StopRequest, site=site)
class StopRequestAdmin(ReadOnly):
    list_display = [
        "number",
        "workspace",
        "run_key",
        "mode",
        "recorded_at",
        "quiet_at",
        "timed_out_at",
        "closed_at",
    ]
    list_filter = ["mode", "workspace"]
    list_select_related = ["workspace"]
    search_fields = ["=id", "=run__id", "^run_key"]


@admin.register(Press, site=site)
class PressAdmin(ReadOnly):
    list_display = ["at", "stop", "actor", "via", "mode", "answer"]
    list_select_related = ["stop"]
    search_fields = ["=stop__id", "=actor"]
    exclude = ["key"]


@admin.register(InFlight, site=site)
class InFlightAdmin(ReadOnly):
    list_display = ["stop", "permit", "state_then"]
    list_select_related = ["stop", "permit"]
    search_fields = ["=stop__id", "=permit__id"]


@admin.register(Refusal, site=site)
class RefusalAdmin(ReadOnly):
    list_display = [
        "first_at",
        "run",
        "boundary",
        "reason",
        "carried_version",
        "current_version",
        "count",
        "worker",
    ]
    list_filter = ["boundary", "reason"]
    list_select_related = ["run"]
    search_fields = ["=run__id", "^step_key", "^effect_key"]


@admin.register(Report, site=site)
class ReportAdmin(ReadOnly):
    list_display = ["run", "version", "outcome", "final", "issued_at", "digest"]
    list_filter = ["outcome", "final"]
    list_select_related = ["run"]
    search_fields = ["=id", "=run__id"]
    exclude = ["body"]


@admin.register(Worker, site=site)
class WorkerAdmin(ReadOnly):
    list_display = ["name", "run", "confirmed_version", "confirmed_at", "last_heard_at"]
    list_select_related = ["run"]
    search_fields = ["=run__id", "^name"]


@admin.register(Session, site=site)
class SessionAdmin(ReadOnly):
    list_display = ["key", "workspace", "gate", "epoch", "gate_at"]
    list_select_related = ["workspace"]
    search_fields = ["=id", "^key"]


@admin.register(Kind, site=site)
class KindAdmin(ReadOnly):
    list_display = ["name", "workspace", "op_class", "provider", "updated_at"]
    list_select_related = ["workspace"]
    search_fields = ["=id", "^name"]


# Who may come in -------------------------------------------------------------------------------------------


class KeptForGood(ModelAdmin):
    """Evidence names these by id for ever, so they are not deleted."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Workspace, site=site)
class WorkspaceAdmin(KeptForGood):
    """A team. Its gate is moved by stops, not by hand."""

    list_display = ["name", "slug", "gate", "created_at"]
    fields = ["name", "slug", "gate", "epoch", "gate_at", "created_at"]
    readonly_fields = ["gate", "epoch", "gate_at", "created_at"]
    prepopulated_fields = {"slug": ["name"]}
    search_fields = ["=id", "name"]

    def save_model(self, request: HttpRequest, obj: Workspace, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            everywhere.shut_at_birth(obj)


@admin.register(Membership, site=site)
class MembershipAdmin(ModelAdmin):
    """A person's role in one workspace: by the same moves, under the same rules and on the same record as
    on the workspace's own page. It takes effect at the next request.
    """

    list_display = ["user", "workspace", "role", "created_at"]
    list_filter = ["role", "workspace"]
    list_select_related = ["user", "workspace"]
    autocomplete_fields = ["user", "workspace"]
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["user", "workspace", "created_at"] if obj else ["created_at"]

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        actor, workspace = _staff(request), _locked(obj.workspace_id)
        if change:
            people.give_role(actor, workspace, Membership.objects.get(pk=obj.pk), obj.role)
        else:
            obj.pk = people.enrol(actor, workspace, obj.user, obj.role).pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        people.dismiss(_staff(request), _locked(obj.workspace_id), obj)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_say_why(super().changeform_view, request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_say_why(super().delete_view, request, *args, **kwargs)

    def _or_say_why(self, view: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """The view is one transaction: what may not be changes nothing in it."""
        try:
            return view(request, *args, **kwargs)
        except people.MayNotCome as error:
            self.message_user(request, f"Nothing was changed. {error}", messages.ERROR)
            return redirect(request.get_full_path())


def _staff(request: HttpRequest) -> Actor:
    assert isinstance(request.user, User)
    return access.staff(request.user, request.META.get("REMOTE_ADDR", ""))


def _locked(workspace_id: str) -> Workspace:
    return Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)


@admin.register(Token, site=site)
class TokenAdmin(KeptForGood):
    """An agent's key. It is issued where its text can be shown, once; here it can be renamed or revoked."""

    list_display = ["name", "lookup", "workspace", "scopes", "expires_at", "revoked_at", "last_used_at"]
    list_filter = ["workspace"]
    list_select_related = ["workspace"]
    search_fields = ["=id", "=lookup", "name"]
    exclude = ["digest"]
    readonly_fields = [
        *("id", "workspace", "run", "lookup", "scopes"),
        *("created_by", "created_at", "revoked_at", "last_used_at"),
    ]
    actions = ["revoke"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.action(description="Revoke the chosen tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, tokens: QuerySet[Token]) -> None:
        """For good, from the next request on. The moment of an earlier revocation stays."""
        chosen = list(tokens.filter(revoked_at__isnull=True))
        for token in chosen:
            people.revoke_token(actor=_staff(request), workspace_id=token.workspace_id, token_id=token.pk)
        self.message_user(request, f"Revoked: {words.count(len(chosen), 'token')}.", messages.SUCCESS)


class NewPerson(AdminUserCreationForm):  # type: ignore[type-arg]
    class Meta:
        model = User
        fields = ("email", "name")

    def clean_email(self) -> str:
        return str(self.cleaned_data["email"]).strip().lower()


class ChangedPerson(UserChangeForm):  # type: ignore[type-arg]
    class Meta:
        model = User
        fields = "__all__"

    def clean_email(self) -> str:
        return str(self.cleaned_data["email"]).strip().lower()


POWERS = ("is_staff", "is_superuser", "groups", "user_permissions")


@admin.register(User, site=site)
class PersonAdmin(PeopleAdmin):
    """A person. Who leaves is made inactive; the name stays beside what they did."""

    form, add_form = ChangedPerson, NewPerson
    list_display = ["email", "name", "is_active", "is_staff", "last_login"]
    list_filter = ["is_active", "is_staff"]
    search_fields = ["email", "name"]
    ordering = ["email"]
    readonly_fields = ["date_joined", "last_login"]
    filter_horizontal = []
    fieldsets = [
        (None, {"fields": ["email", "password", "name", "is_active"]}),
        ("Powers over this installation", {"fields": ["is_staff", "is_superuser", "user_permissions"]}),
        ("Moments", {"fields": ["date_joined", "last_login"]}),
    ]
    add_fieldsets = [(None, {"fields": ["email", "name", "usable_password", "password1", "password2"]})]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Only a superuser gives powers, so nobody gives them to themselves."""
        mine = list(super().get_readonly_fields(request, obj))
        return mine if _is_superuser(request) else [*mine, *POWERS]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """A superuser's password and address are a superuser's to change."""
        if obj is not None and obj.is_superuser and not _is_superuser(request):
            return False
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False


def _is_superuser(request: HttpRequest) -> bool:
    return isinstance(request.user, User) and request.user.is_superuser

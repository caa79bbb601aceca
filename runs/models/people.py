"""Who: people, their role in a workspace, and the tokens of agents."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from runs.columns import Words
from runs.store import Now, new_id


class UserManager(BaseUserManager["User"]):
    """Makes people; an e-mail address is kept in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person. Evidence names people by id only; the name lives here."""

    email = models.EmailField(unique=True)
    name = Words(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    # Set by somebody else: good for signing in and choosing one's own, for nothing more.
    password_once = models.BooleanField(default=False)
    date_joined = models.DateTimeField(db_default=Now())

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints = (models.UniqueConstraint(Lower("email"), name="user_email_once"),)

    def __str__(self) -> str:
        return self.name or self.email

    def get_full_name(self) -> str:
        return str(self)


class Role(models.TextChoices):
    """What a person may do in one workspace; each includes the one before, bar admin's extras."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    REVIEWER = "reviewer"
    ADMIN = "admin"


class Membership(models.Model):
    """One person's role in one workspace."""

    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    workspace = models.ForeignKey("runs.Workspace", models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["user", "workspace"], name="member_once"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="member_role"),
        )

    def __str__(self) -> str:
        return f"{self.user} {self.role}"


class Token(models.Model):
    """An agent's key: SHA-256 of 256 random bits, bound to a workspace, shown once."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "tok"))
    workspace = models.ForeignKey("runs.Workspace", models.CASCADE, related_name="tokens")
    run = models.ForeignKey("runs.Run", models.CASCADE, null=True, blank=True, related_name="+")
    name = Words(max_length=120)
    lookup = models.CharField(max_length=8, unique=True)
    digest = models.CharField(max_length=64)
    scopes = models.JSONField(default=list)
    created_by = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=Q(expires_at__isnull=True) | Q(expires_at__gt=F("created_at")),
                name="token_ends_after_it_began",
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.lookup}…)"

"""Who signs in, in whose name, and with which key."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.foundation.moments import within_calendar


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A user who can sign in with `email`; no password means none fits.

        Whoever calls this vouches for the address, unless `verified_at` says otherwise.
        """
        fields.setdefault("verified_at", clock.now())
        user = self.model(email=self.normalize_email(email).strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """An operator."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> User:
        """The user of an e-mail address, however its letters were typed."""
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person. What they may do hangs on their memberships, not on them."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(unique=True)  # always in lower case
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    verified_at = models.DateTimeField(null=True, blank=True)  # when somebody was seen to read the address's mail
    second_factor_at = models.DateTimeField(null=True, blank=True, editable=False)  # since when they show one
    staff_since = models.DateTimeField(null=True, blank=True, editable=False)  # the database writes it, nobody else can
    created_at = models.DateTimeField(auto_now_add=True)

    objects = UserManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="user_email_in_lower_case")]

    def __str__(self) -> str:
        return self.email


class Organisation(models.Model):
    """Buys, sells, or both; everything that costs or earns belongs to one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=120)
    members = models.ManyToManyField(User, through="Membership", related_name="organisations")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """owner: everything. member: jobs and nodes. billing: money, and nothing else."""

    OWNER = "owner"
    MEMBER = "member"
    BILLING = "billing"


class Membership(models.Model):
    """One user's role in one organisation."""

    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "user"], name="one_membership_per_organisation"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.organisation}"


class Invitation(models.Model):
    """Lets one e-mail address join: an organisation, or (without one) the marketplace. Only its hash is kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=models.CASCADE)
    email = models.EmailField()
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)
    token_hash = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_role_known"),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="invitation_email_in_lower_case"),
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.organisation or 'the marketplace'}"


class PendingSignup(models.Model):
    """An account that somebody asked for, until its mailed link is opened. Only the link's hash is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField()
    password = models.CharField(max_length=128)  # hashed, as a user's
    name = models.CharField(max_length=120, blank=True)
    organisation_name = models.CharField(max_length=120, blank=True)
    invitation_hash = models.CharField(max_length=64, blank=True)
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="signup_email_in_lower_case")]

    def __str__(self) -> str:
        return f"asked for until {self.expires_at:%Y-%m-%d %H:%M}"


class ApiKey(models.Model):
    """A key of one user in one organisation, with scopes. Shown once; only its prefix and hash are kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="api_keys")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16, unique=True)
    key_hash = models.CharField(max_length=64)
    scopes: ArrayField[Any, Any] = ArrayField(models.CharField(max_length=32))
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [within_calendar("expires_at", name="api_key_expires_within_calendar")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"


class SigninLimit(models.Model):
    """How many passwords in a row were wrong for one account or from one address; the key says neither in clear."""

    key = models.CharField(max_length=80, primary_key=True)
    failures = models.PositiveIntegerField(default=0)
    locks = models.PositiveIntegerField(default=0)  # one after the other, each longer than the one before
    began_at = models.DateTimeField(db_index=True)
    locked_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.key[:16]}...: {self.failures} failures"


class SigninAddress(models.Model):
    """A network address that a user signed in from with the right password; only its keyed hash is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="signin_addresses")
    address_hash = models.CharField(max_length=64)
    signed_in_at = models.DateTimeField(db_index=True)  # last

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "address_hash"], name="one_signin_address_a_user")]

    def __str__(self) -> str:
        return f"{self.user_id} from {self.address_hash[:8]}..."


class SecondFactor(models.Model):
    """What a user shows besides the password: an authenticator app's codes, or one of a few recovery codes."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="second_factor")
    sealed_secret = models.CharField(max_length=300)
    last_step = models.BigIntegerField()  # of the newest code that was used: neither it nor an older one opens again
    recovery_hashes: ArrayField[Any, Any] = ArrayField(models.CharField(max_length=64))  # those not used yet
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"of {self.user_id}, {len(self.recovery_hashes)} recovery codes left"


class SignupPolicy(models.TextChoices):
    """Who may make an account: anybody, the invited, or nobody."""

    OPEN = "open"
    INVITATION = "invitation"
    CLOSED = "closed"


class SitePolicy(models.Model):
    """The operator's switches; there is exactly one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    signup = models.CharField(max_length=16, choices=SignupPolicy.choices, default=SignupPolicy.INVITATION)

    class Meta:
        verbose_name_plural = "site policy"
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="one_site_policy"),
            models.CheckConstraint(condition=Q(signup__in=SignupPolicy.values), name="signup_policy_known"),
        ]

    def __str__(self) -> str:
        return f"sign-up: {self.signup}"

    @classmethod
    def current(cls) -> SitePolicy:
        """The one row, made with its defaults when it is missing."""
        return cls.objects.get_or_create(pk=1)[0]

"""Django's settings, all from the environment; `souk up` supplies every value that embedded mode needs.

Nothing here has a usable default for a secret: a server that was not given its keys does not start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import django_stubs_ext
from celery.schedules import crontab
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.retry import Retry

from marketplace.config.logging import settings_for as logging_settings
from provider_agent.protocol import PUBLIC_REGISTRIES

django_stubs_ext.monkeypatch()  # lets ModelAdmin["Node"] and the like be written at run time


def _required(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise ImproperlyConfigured(f"{name} is not set. `souk up` sets it; docs/operator-guide.md lists all.") from None


def database_from_url(url: str) -> dict[str, Any]:
    """Django's settings for postgresql://user:password@host:port/name?host=/socket/folder"""
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ImproperlyConfigured("DATABASE_URL must start with postgresql://; Souk keeps its truth in PostgreSQL.")
    query = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "marketplace.foundation.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", parts.hostname or ""),
        "PORT": query.get("port", str(parts.port or "")),
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # a restarted PostgreSQL costs one check, not one failed request a connection
        "OPTIONS": {"pool": {"min_size": 1, "max_size": int(os.environ.get("SOUK_DATABASE_POOL", "8")), "timeout": 20}},
    }


def broker_url_from(redis_url: str) -> str:
    """Celery's spelling of REDIS_URL: it needs redis+socket:///path?virtual_host=0 for a Unix socket."""
    parts = urlsplit(redis_url)
    if parts.scheme in {"redis", "rediss"}:
        return redis_url
    if parts.scheme != "unix" or not parts.path.startswith("/"):
        raise ImproperlyConfigured("REDIS_URL must be redis://host:port/0 or unix:///path/to/socket?db=0.")
    return f"redis+socket://{parts.path}?virtual_host={dict(parse_qsl(parts.query)).get('db', '0')}"


EXPIRY_SECONDS_MAX = 3600.0

PROJECT_ROOT = Path(__file__).resolve().parents[2]

SOUK_SECRET_KEY = SECRET_KEY = _required("SOUK_SECRET_KEY")
SOUK_SIGNING_KEY = _required("SOUK_SIGNING_KEY")
SOUK_DATA = Path(_required("SOUK_DATA"))
SOUK_API_URL = os.environ.get("SOUK_API_URL", "http://127.0.0.1:8000").rstrip("/")
SOUK_SYNC_URL = os.environ.get("SOUK_SYNC_URL", "http://127.0.0.1:8001").rstrip("/")
SOUK_FEE_BPS = int(os.environ.get("SOUK_FEE_BPS", "1000"))
SOUK_CHALLENGE_SECONDS = int(os.environ.get("SOUK_CHALLENGE_SECONDS", "86400"))
# The same for providers whose record allows it (billing/charging/challenge_windows.py); -1: for nobody.
SOUK_FAST_RELEASE_SECONDS = int(os.environ.get("SOUK_FAST_RELEASE_SECONDS", "-1"))
SOUK_QUOTE_SECONDS = int(os.environ.get("SOUK_QUOTE_SECONDS", "600"))
SOUK_SERVE_WINDOW_HOURS = float(os.environ.get("SOUK_SERVE_WINDOW_HOURS", "2"))
SOUK_VERIFICATION = os.environ.get("SOUK_VERIFICATION", "shadow")
SOUK_IMAGE_REGISTRIES = [  # from which jobs' images may come; a provider may list others for its node
    each.strip().lower()
    for each in os.environ.get("SOUK_IMAGE_REGISTRIES", ",".join(PUBLIC_REGISTRIES)).split(",")
    if each.strip()
]
SOUK_SHARED_MACHINE = os.environ.get("SOUK_SHARED_MACHINE", "0") == "1"
SOUK_SERVING_URL = os.environ.get("SOUK_SERVING_URL", "").rstrip("/")  # by which callers reach it
SOUK_CHAT_MODEL = os.environ.get("SOUK_CHAT_MODEL", "")  # a public model, ORGANISATION/NAME: the site's own chat
SOUK_GATEWAY_TOKEN = os.environ.get("SOUK_GATEWAY_TOKEN", "")  # empty: no gateway may ask anything
SOUK_DRAIN_SECONDS = int(os.environ.get("SOUK_DRAIN_SECONDS", "30"))  # a draining replica's requests may take
SOUK_AGENT_WHEEL = os.environ.get("SOUK_AGENT_WHEEL", "")  # empty: `manage.py publish_agent` makes it in SOUK_DATA/dist
# How carefully a release of the agent is rolled out; see marketplace/nodes/releases/rollout.py.
SOUK_ROLLOUT_SOAK_SECONDS = float(os.environ.get("SOUK_ROLLOUT_SOAK_SECONDS", "1800"))
SOUK_ROLLOUT_CHECKED_IN_MIN = int(os.environ.get("SOUK_ROLLOUT_CHECKED_IN_MIN", "3"))
SOUK_ROLLOUT_ROLLBACKS_MAX = int(os.environ.get("SOUK_ROLLOUT_ROLLBACKS_MAX", "2"))
# Versions that a node must have at least, because those below have known holes or lack what is needed.
SOUK_NODE_FLOORS: dict[str, str] = {
    "docker": "20.10",
    "nvidia-container-toolkit": "1.17.8",  # CVE-2024-0132, CVE-2025-23266
    "nvidia-driver": "525.60",
    **json.loads(os.environ.get("SOUK_NODE_FLOORS", "{}")),
}
SOUK_WAITING_JOBS_MAX = int(os.environ.get("SOUK_WAITING_JOBS_MAX", "20000"))  # of an organisation
SOUK_STORAGE_FILES_MAX = int(os.environ.get("SOUK_STORAGE_FILES_MAX", "2000000"))  # that an organisation may keep
SOUK_STORAGE_GIB_MAX = float(os.environ.get("SOUK_STORAGE_GIB_MAX", "500"))  # that an organisation may keep
SOUK_INPUT_KEPT_DAYS = float(os.environ.get("SOUK_INPUT_KEPT_DAYS", "30"))  # after the last job that had it ended
SOUK_VOLUME_VERSION_KEPT_DAYS = float(os.environ.get("SOUK_VOLUME_VERSION_KEPT_DAYS", "7"))  # of superseded ones
SOUK_OUTPUT_KEPT_DAYS = float(os.environ.get("SOUK_OUTPUT_KEPT_DAYS", "90"))  # checkpoints too, of jobs that ended
# What is kept beyond the free GiB costs so much a GiB and 30 days, charged by the day; 0: nothing.
SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH = int(os.environ.get("SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH", "0"))
SOUK_STORAGE_GIB_FREE = float(os.environ.get("SOUK_STORAGE_GIB_FREE", "50"))
SOUK_ARTIFACT_STORE = os.environ.get("SOUK_ARTIFACT_STORE", "local")
SOUK_S3_BUCKET = os.environ.get("SOUK_S3_BUCKET", "")
SOUK_S3_ENDPOINT = os.environ.get("SOUK_S3_ENDPOINT", "")
SOUK_S3_REGION = os.environ.get("SOUK_S3_REGION", "")
SOUK_S3_ACCESS_KEY = os.environ.get("SOUK_S3_ACCESS_KEY", "")
SOUK_S3_SECRET_KEY = os.environ.get("SOUK_S3_SECRET_KEY", "")
# A second copy of what is kept, in another failure domain (jobs/artifacts/copies.py); empty: there is none.
SOUK_ARTIFACT_SECOND_STORE = os.environ.get("SOUK_ARTIFACT_SECOND_STORE", "")
SOUK_ARTIFACT_SECOND_FOLDER = os.environ.get("SOUK_ARTIFACT_SECOND_FOLDER", "")
SOUK_ARTIFACT_SECOND_S3_BUCKET = os.environ.get("SOUK_ARTIFACT_SECOND_S3_BUCKET", "")
SOUK_ARTIFACT_SECOND_S3_ENDPOINT = os.environ.get("SOUK_ARTIFACT_SECOND_S3_ENDPOINT", "")
SOUK_ARTIFACT_SECOND_S3_REGION = os.environ.get("SOUK_ARTIFACT_SECOND_S3_REGION", "")
SOUK_ARTIFACT_SECOND_S3_ACCESS_KEY = os.environ.get("SOUK_ARTIFACT_SECOND_S3_ACCESS_KEY", "")
SOUK_ARTIFACT_SECOND_S3_SECRET_KEY = os.environ.get("SOUK_ARTIFACT_SECOND_S3_SECRET_KEY", "")
SOUK_ARTIFACT_SECOND_MIB_PER_SECOND = float(os.environ.get("SOUK_ARTIFACT_SECOND_MIB_PER_SECOND", "100"))
SOUK_ARTIFACT_SECOND_HOURS_MAX = float(os.environ.get("SOUK_ARTIFACT_SECOND_HOURS_MAX", "6"))  # then there is an alert

# How long a provider may take to answer a dispute, and an operator to decide it before an alert reminds them.
SOUK_DISPUTE_ANSWER_SECONDS = int(os.environ.get("SOUK_DISPUTE_ANSWER_SECONDS", str(3 * 86400)))
SOUK_DISPUTE_DECIDE_SECONDS = int(os.environ.get("SOUK_DISPUTE_DECIDE_SECONDS", str(7 * 86400)))
# How often a signed report of all that is owed is made; each customer can prove their part of it;
# billing/solvency/publishing.py.
SOUK_SOLVENCY_SECONDS = float(os.environ.get("SOUK_SOLVENCY_SECONDS", "3600"))
# The seller's details on invoices: {"name": "...", "address": "...", "tax_id": "..."}.
SOUK_INVOICE_SELLER: dict[str, str] = json.loads(os.environ.get("SOUK_INVOICE_SELLER", '{"name": "Souk"}'))
# Alerts to the operators go by e-mail where addresses are given.
SOUK_ALERT_EMAILS = [each.strip() for each in os.environ.get("SOUK_ALERT_EMAILS", "").split(",") if each.strip()]
# Mail goes out where a server is named, or operators are to be notified; otherwise it is printed into the worker's log.
_HAS_MAIL = bool(os.environ.get("SOUK_SMTP_HOST") or SOUK_ALERT_EMAILS)
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if _HAS_MAIL else 'console'}.EmailBackend"
EMAIL_HOST = os.environ.get("SOUK_SMTP_HOST") or "localhost"
EMAIL_PORT = int(os.environ.get("SOUK_SMTP_PORT", "25"))
EMAIL_HOST_USER = os.environ.get("SOUK_SMTP_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("SOUK_SMTP_PASSWORD", "")
EMAIL_USE_TLS = os.environ.get("SOUK_SMTP_TLS", "0") == "1"
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = os.environ.get("SOUK_EMAIL_FROM", "souk@localhost")
# Prices of tokens. Fixed ones by the asset's code: {"USDC": "1.00"}. Feeds, at least two an asset:
# {"WETH": [{"name": "a", "url": "https://...", "path": "ethereum.usd"}, ...]}; see billing/prices/feeds.py.
SOUK_TOKEN_PRICES: dict[str, str] = json.loads(os.environ.get("SOUK_TOKEN_PRICES", "{}"))
SOUK_PRICE_FEEDS: dict[str, list[dict[str, str]]] = json.loads(os.environ.get("SOUK_PRICE_FEEDS", "{}"))
SOUK_PRICE_AGE_SECONDS_MAX = float(os.environ.get("SOUK_PRICE_AGE_SECONDS_MAX", "300"))
SOUK_PRICE_OPERATOR_AGE_SECONDS_MAX = float(os.environ.get("SOUK_PRICE_OPERATOR_AGE_SECONDS_MAX", "86400"))
SOUK_PRICE_DEVIATION_BPS_MAX = int(os.environ.get("SOUK_PRICE_DEVIATION_BPS_MAX", "200"))
SOUK_PRICE_JUMP_BPS_MAX = int(os.environ.get("SOUK_PRICE_JUMP_BPS_MAX", "3000"))
# How long a job without a lease keeps a token's price unseen, and how far that may then be from the price of now.
SOUK_TOKEN_PRICE_SECONDS = float(os.environ.get("SOUK_TOKEN_PRICE_SECONDS", "900"))
SOUK_TOKEN_PRICE_MOVE_BPS = int(os.environ.get("SOUK_TOKEN_PRICE_MOVE_BPS", "200"))

# Chains and the keys that sign there; docs/operator-guide.md describes the format. No chain: nothing is paid in tokens.
SOUK_CHAINS: list[dict[str, Any]] = json.loads(os.environ.get("SOUK_CHAINS", "[]"))
SOUK_CHAIN_KEY = os.environ.get("SOUK_CHAIN_KEY", "")
SOUK_CHAIN_SETTLER_KEY = os.environ.get("SOUK_CHAIN_SETTLER_KEY", "")
SOUK_CHAIN_PUBLISHER_KEY = os.environ.get("SOUK_CHAIN_PUBLISHER_KEY", "")
# Where these are a multisig's, `souk chain` prints what it has to send.
SOUK_CHAIN_ARBITER_KEY = os.environ.get("SOUK_CHAIN_ARBITER_KEY", "")
SOUK_CHAIN_SLASHER_KEY = os.environ.get("SOUK_CHAIN_SLASHER_KEY", "")
SOUK_CHAIN_PAUSER_KEY = os.environ.get("SOUK_CHAIN_PAUSER_KEY", "")
SOUK_CHAIN_ADMIN_KEY = os.environ.get("SOUK_CHAIN_ADMIN_KEY", "")
SOUK_CHAIN_TRANSACTIONS_MIN = int(os.environ.get("SOUK_CHAIN_TRANSACTIONS_MIN", "100"))  # that a key has coins for
# Where the web server listens, as far as it is known: only loopback may pretend money (billing/rails/loopback.py).
SOUK_BIND = os.environ.get("SOUK_BIND", "")
SOUK_FAKE_MONEY = os.environ.get("SOUK_FAKE_MONEY", "0") == "1"

# Payouts (billing/payouts, billing/reconciliation). Rails by name, in the order in which they are offered.
_FOR_DOLLARS = "stripe" if os.environ.get("SOUK_STRIPE_KEY") else "fake" if SOUK_FAKE_MONEY else ""
_RAILS = ",".join(rail for rail in (_FOR_DOLLARS, "chain" if SOUK_CHAINS else "") if rail)
SOUK_PAYOUT_RAILS = os.environ.get("SOUK_PAYOUT_RAILS", _RAILS).split(",")
SOUK_PAYOUT_HOUR = int(os.environ.get("SOUK_PAYOUT_HOUR", "22"))  # of the day, UTC
SOUK_PAYOUT_MINIMUM_USD_MICROS = int(os.environ.get("SOUK_PAYOUT_MINIMUM_USD_MICROS", "1000000"))
# How long another destination waits before it is used, so that a stolen login cannot redirect the next payout.
SOUK_PAYOUT_CHANGE_SECONDS = int(os.environ.get("SOUK_PAYOUT_CHANGE_SECONDS", str(72 * 3600)))
SOUK_PROBATION_DAYS = int(os.environ.get("SOUK_PROBATION_DAYS", "30"))
SOUK_PROBATION_SETTLEMENTS = int(os.environ.get("SOUK_PROBATION_SETTLEMENTS", "20"))
SOUK_RESERVE_BPS = int(os.environ.get("SOUK_RESERVE_BPS", "1000"))
SOUK_RESERVE_DAYS = int(os.environ.get("SOUK_RESERVE_DAYS", "30"))
# Cards and providers' accounts, through Stripe. Without a key there are none. Limits are whole dollars.
SOUK_STRIPE_KEY = os.environ.get("SOUK_STRIPE_KEY", "")
SOUK_STRIPE_API_BASE = os.environ.get("SOUK_STRIPE_API_BASE", "")  # empty: Stripe's own
# More than one while a secret is being changed, separated by commas.
SOUK_STRIPE_WEBHOOK_SECRETS = [
    secret.strip() for secret in os.environ.get("SOUK_STRIPE_WEBHOOK_SECRETS", "").split(",") if secret.strip()
]
SOUK_STRIPE_TAX = os.environ.get("SOUK_STRIPE_TAX", "0") == "1"  # Stripe computes and collects tax on its page
SOUK_TOP_UP_USD_MIN = int(os.environ.get("SOUK_TOP_UP_USD_MIN", "5"))
SOUK_TOP_UP_USD_MAX = int(os.environ.get("SOUK_TOP_UP_USD_MAX", "5000"))
SOUK_TOP_UP_USD_DAY_MAX = int(os.environ.get("SOUK_TOP_UP_USD_DAY_MAX", "10000"))
# Customers whose first payment is newer than this: a lower daily limit, and a wait before large amounts can be spent.
SOUK_TOP_UP_NEW_DAYS = int(os.environ.get("SOUK_TOP_UP_NEW_DAYS", "14"))
SOUK_TOP_UP_NEW_USD_DAY_MAX = int(os.environ.get("SOUK_TOP_UP_NEW_USD_DAY_MAX", "1000"))
SOUK_TOP_UP_NEW_USD_AT_ONCE_MAX = int(os.environ.get("SOUK_TOP_UP_NEW_USD_AT_ONCE_MAX", "200"))
SOUK_TOP_UP_NEW_WAIT_SECONDS = int(os.environ.get("SOUK_TOP_UP_NEW_WAIT_SECONDS", "86400"))
# How many days after a top-up providers may be charged for what it paid, if the customer's bank reverses the top-up.
SOUK_CHARGEBACK_PROVIDER_DAYS = int(os.environ.get("SOUK_CHARGEBACK_PROVIDER_DAYS", "120"))  # 0: never

REDIS_URL = _required("REDIS_URL")
DEBUG = os.environ.get("SOUK_DEBUG", "0") == "1"
SOUK_METRICS_TOKEN = os.environ.get("SOUK_METRICS_TOKEN", "")
SOUK_INSECURE_HTTP = os.environ.get("SOUK_INSECURE_HTTP", "0") == "1"
# Whether operators need a second factor: "required", or "optional" for a development machine.
SOUK_STAFF_SECOND_FACTOR = os.environ.get("SOUK_STAFF_SECOND_FACTOR", "required")
# Whether an account is made by a mailed link, and money needs a verified address: "required", or "off".
SOUK_EMAIL_VERIFICATION = os.environ.get("SOUK_EMAIL_VERIFICATION", "required")
# Which proxies may say where a request came from: a number, or networks; marketplace/foundation/client_address.py.
SOUK_TRUSTED_PROXIES = os.environ.get("SOUK_TRUSTED_PROXIES", "")
ALLOWED_HOSTS = os.environ.get("SOUK_ALLOWED_HOSTS", "127.0.0.1,localhost").split(",")
CSRF_TRUSTED_ORIGINS = [SOUK_API_URL]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "marketplace.foundation",
    "marketplace.accounts",
    "marketplace.nodes",
    "billing",
    "jobs",
    "marketplace.portal",
    "marketplace.config",
]
MIDDLEWARE = [
    "marketplace.config.request_metrics.count_requests",
    "marketplace.config.content_security.say_what_may_load",
    "marketplace.config.zero_bytes.refuse_zero_bytes",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "marketplace.portal.signin.second_step.require_second_factor",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "marketplace.config.api_errors.NamedErrors",
]
ROOT_URLCONF = "marketplace.config.urls"
WSGI_APPLICATION = "marketplace.config.wsgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": database_from_url(_required("DATABASE_URL"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"
PASSWORD_RESET_TIMEOUT = 3600  # seconds that a mailed link holds
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        # redis-py's own retries would cost seconds a request while Redis is away; the callers can answer without it.
        "OPTIONS": {"retry": Retry(NoBackoff(), 1), "socket_connect_timeout": 1, "socket_timeout": 2},
    }
}

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
STATIC_URL = "/static/"
STATIC_ROOT = SOUK_DATA / "static"
WHITENOISE_USE_FINDERS = True

IS_HTTPS = SOUK_API_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if IS_HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if IS_HTTPS else None
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"

DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "marketplace.accounts.auth.ApiKeyAuthentication",
        "marketplace.accounts.auth.OrganisationSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["marketplace.foundation.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "marketplace.foundation.pagination.NewestFirst",
    "EXCEPTION_HANDLER": "marketplace.config.api_errors.handle",
    "DEFAULT_THROTTLE_CLASSES": [
        "marketplace.foundation.throttles.AnonThrottle",
        "marketplace.foundation.throttles.UserThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": {
        "anon": os.environ.get("SOUK_THROTTLE_ANON", "60/min"),
        "user": os.environ.get("SOUK_THROTTLE_USER", "1200/min"),
        "signin": os.environ.get("SOUK_THROTTLE_SIGNIN", "10/min"),
    },
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Souk",
    "DESCRIPTION": "The decentralized GPU marketplace: quotes, jobs, nodes, bills.",
    "VERSION": "v1",
    "OAS_VERSION": "3.1.1",  # its schemas are JSON Schema, which is what pydantic writes
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # The agent's protocol is versioned in provider_agent/protocol/limits.py and is not an API for people.
    "PREPROCESSING_HOOKS": ["marketplace.config.openapi.keep_public_paths"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "marketplace.config.openapi.name_errors",
    ],
    "ENUM_NAME_OVERRIDES": {
        "AccountKind": "billing.account_kinds.AccountKind",
        "CheckState": "marketplace.nodes.states.CheckState",
        "DeviceKind": [("gpu", "gpu"), ("cpu", "cpu")],
        "InvoiceKind": "billing.models.invoices.Invoice.Kind",
        "NodeState": "marketplace.nodes.states.NodeState",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# Celery wakes; the truth is in PostgreSQL. A task may run twice or never, so none is acknowledged late and every
# scheduled one expires before its next turn: a worker that comes back does not work off a pile of stale ticks.
CELERY_BROKER_URL = broker_url_from(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 120,
    # Without these two, what a killed worker held comes back after minutes instead of the visibility timeout.
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "socket_timeout": None,  # redis-py's default of 5 s would cut blocking reads
}
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "souk"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_ENABLE_UTC = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"  # in memory: a schedule file can break, and nothing here needs one
# Whoever changes something wakes what is next; these only heal, so they need not be frequent: on a small machine a job
# on the same cores loses what each tick costs.
CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    task: {"task": task, "schedule": every, "options": {"expires": EXPIRY_SECONDS_MAX if at_night else every}}
    for task, every, at_night in (
        ("marketplace.nodes.tasks.flush_beats", 2.0, False),
        ("marketplace.nodes.tasks.fold_loads", 60.0, False),
        ("marketplace.nodes.tasks.thin_metrics", 3600.0, False),
        ("jobs.tasks.place_jobs", 2.0, False),
        ("jobs.tasks.keep_endpoints", 2.0, False),
        ("jobs.tasks.keep_windows", 30.0, False),
        ("jobs.tasks.settle_serving", 600.0, False),
        ("jobs.tasks.pay_tokens", 60.0, False),
        ("jobs.tasks.forget_serving", 3600.0, False),
        ("jobs.tasks.sweep_leases", 5.0, False),
        ("jobs.tasks.sweep_silent_nodes", 5.0, False),
        ("jobs.tasks.sweep_jobs", 2.0, False),
        ("jobs.tasks.launch_evaluations", 5.0, False),
        ("jobs.tasks.sweep_checks", 5.0, False),
        ("jobs.tasks.sweep_releases", 15.0, False),
        ("jobs.tasks.prune_artifacts", 30.0, False),
        ("jobs.tasks.charge_storage", 900.0, False),
        ("jobs.tasks.check_plans", 60.0, False),
        ("jobs.tasks.copy_artifacts", 30.0, False),  # without a second store it closes the alerts of the one before
        ("billing.tasks.release_pending", 5.0, False),
        ("billing.tasks.seal_transfers", 60.0, False),
        ("billing.tasks.dispatch_due", 5.0, False),
        ("billing.tasks.refresh_prices", 60.0, False),
        ("billing.tasks.sweep_disputes", 60.0, False),
        ("billing.tasks.expire_promotions", 300.0, False),
        ("billing.tasks.issue_invoices", crontab(hour="4", minute="10"), True),
        *([("billing.tasks.follow_chains", 5.0, False)] if SOUK_CHAINS else []),
        *([("billing.tasks.tend_chains", 60.0, False)] if SOUK_CHAINS else []),
        ("billing.tasks.run_payouts", 300.0, False),
        ("billing.tasks.follow_payouts", 60.0, False),
        ("billing.tasks.reconcile", crontab(minute="7"), True),
        ("billing.tasks.tend_fiat", 30.0, False),
        ("billing.tasks.poll_stripe", 300.0, False),
        ("marketplace.foundation.tasks.seal_events", 300.0, False),
        ("marketplace.foundation.tasks.forget_old_keys", crontab(hour="3", minute="0"), True),
        ("marketplace.accounts.tasks.forget_signin_limits", crontab(hour="3", minute="20"), True),
    )
}

LOGGING = logging_settings(os.environ.get("SOUK_LOG_LEVEL", "INFO"))

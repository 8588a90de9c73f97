"""Connected accounts: made by the platform, filled in by their owner on Stripe's pages, and what they may do then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.stripe.customers import merge_metadata
from tests.fakes.stripe.errors import absent, invalid, missing
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, account, bank_account, listing, requirements
from tests.fakes.stripe.store import PLATFORM

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

LINK_SECONDS: Final = 300
DUE_AT_FIRST: Final = ("business_profile.url", "external_account", "tos_acceptance.date", "tos_acceptance.ip")


@route("POST", "/v1/accounts", "AccountCreateParams", makes="account")
def create_account(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    if "type" in params:
        message = "This platform makes accounts by their controller properties, and no longer by a type."
        raise invalid(message, code="parameter_unknown", param="type")
    controller = _controller(params.get("controller") or {})
    fields = account() | {
        "business_type": params.get("business_type"),
        "country": params.get("country", "US"),
        "default_currency": params.get("default_currency", "usd"),
        "email": params.get("email"),
        "id": "acct_" + stripe.store.new_id("x", 16)[2:],
        "type": "none",
    }
    fields["controller"] = controller | {"is_controller": True, "type": "application"}
    made = stripe.store.add(PLATFORM, fields, has_livemode=False)
    made["external_accounts"] = listing(f"/v1/accounts/{made['id']}/external_accounts") | {"total_count": 0}
    _require(made, DUE_AT_FIRST)
    stripe.store.open_account(made["id"])
    _fill(made, params)
    return made


@route("GET", "/v1/accounts", "AccountListParams")
def list_accounts(stripe: FakeStripe, call: Call) -> Object:
    return stripe.store.page(PLATFORM, "account", call.params, call.path)


@route("GET", "/v1/account")
def retrieve_own_account(stripe: FakeStripe, call: Call) -> Object:
    if call.is_connected:
        return stripe.store.get(PLATFORM, "account", call.account)
    return account() | {"id": PLATFORM, "charges_enabled": True, "payouts_enabled": True, "country": "US"}


@route("GET", "/v1/accounts/{id}")
def retrieve_account(stripe: FakeStripe, call: Call, id: str) -> Object:
    return _get(stripe, id)


@route("POST", "/v1/accounts/{id}", "AccountUpdateParams")
def update_account(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = _get(stripe, id)
    _fill(found, call.params)
    stripe.emit("account.updated", found, call, account=id)
    return found


@route("DELETE", "/v1/accounts/{id}")
def delete_account(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = _get(stripe, id)
    if any(any(pair) for pair in stripe.books.sums(id).values()):
        raise invalid("This account cannot be deleted because it has a balance.", code="account_balance_not_zero")
    stripe.store.remove(PLATFORM, found["id"])
    return {"id": id, "object": "account", "deleted": True}


@route("POST", "/v1/accounts/{id}/login_links", "AccountCreateLoginLinkParams")
def create_login_link(stripe: FakeStripe, call: Call, id: str) -> Object:
    if not _get(stripe, id)["details_submitted"]:
        raise invalid("Cannot create a login link for an account that has not completed onboarding.")
    return {"object": "login_link", "created": stripe.clock.now(), "url": f"https://connect.stripe.com/express/{id}"}


@route("GET", "/v1/accounts/{id}/external_accounts", "AccountListExternalAccountsParams")
def list_external_accounts(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.page_of(_get(stripe, id)["external_accounts"]["data"], call.params, call.path)


@route("POST", "/v1/account_links", "AccountLinkCreateParams")
def create_account_link(stripe: FakeStripe, call: Call) -> Object:
    for name in ("account", "type"):
        if name not in call.params:
            raise missing(name)
    if call.params["type"] == "account_onboarding":
        for name in ("refresh_url", "return_url"):
            if name not in call.params:
                raise missing(name)
    found = _get(stripe, call.params["account"], param="account")
    now = stripe.clock.now()
    url = f"https://connect.stripe.com/setup/e/{found['id']}/{stripe.store.new_id('l', 12)[2:]}"
    return {"object": "account_link", "created": now, "expires_at": now + LINK_SECONDS, "url": url}


def onboard(stripe: FakeStripe, account_id: str) -> Object:
    """The owner has filled everything in: all that was requested is active, payouts have a bank account."""
    found = stripe.store.get(PLATFORM, "account", account_id)
    now = stripe.clock.now()
    if not found["external_accounts"]["data"]:
        fields = bank_account() | {"account": account_id, "id": stripe.store.new_id("ba"), "country": found["country"]}
        fields["currency"] = found["default_currency"]
        fields["available_payout_methods"] = ["standard"]
        found["external_accounts"] |= {"data": [fields], "total_count": 1}
    found |= {"details_submitted": True, "payouts_enabled": True, "requirements": requirements()}
    found["capabilities"] = dict.fromkeys(found["capabilities"], "active")
    found["charges_enabled"] = "card_payments" in found["capabilities"]
    found["tos_acceptance"] |= {"date": now, "ip": "203.0.113.7"}
    stripe.emit("account.updated", found, account=account_id)
    return found


def restrict(stripe: FakeStripe, account_id: str, due: tuple[str, ...]) -> Object:
    """Stripe wants to know more before it pays out; transfers stop too."""
    found = stripe.store.get(PLATFORM, "account", account_id)
    _require(found, due)
    found |= {"payouts_enabled": False, "charges_enabled": False}
    found["capabilities"] = dict.fromkeys(found["capabilities"], "inactive")
    stripe.emit("account.updated", found, account=account_id)
    return found


def stop_payouts(stripe: FakeStripe, account_id: str) -> Object:
    """Stripe still takes transfers to this account, and sends nothing on to its bank."""
    found = stripe.store.get(PLATFORM, "account", account_id)
    found["payouts_enabled"] = False
    stripe.emit("account.updated", found, account=account_id)
    return found


def _controller(wanted: Object) -> Object:
    """Stripe's defaults where nothing is said, and its rules about what goes together."""
    fees = (wanted.get("fees") or {}).get("payer", "account")
    losses = (wanted.get("losses") or {}).get("payments", "stripe")
    collection = wanted.get("requirement_collection", "stripe")
    dashboard = (wanted.get("stripe_dashboard") or {}).get("type", "full")
    for name, value, known in (
        ("fees][payer", fees, ("account", "application")),
        ("losses][payments", losses, ("application", "stripe")),
        ("requirement_collection", collection, ("application", "stripe")),
        ("stripe_dashboard][type", dashboard, ("express", "full", "none")),
    ):
        if value not in known:
            raise invalid(f"Invalid controller[{name}]: must be one of {', '.join(known)}", param=f"controller[{name}]")
    if losses == "application" and fees != "application":
        message = "When controller[losses][payments] is application, controller[fees][payer] must be application."
        raise invalid(message, param="controller[fees][payer]")
    if collection == "application" and dashboard != "none":
        message = (
            "controller[requirement_collection] is application only where controller[stripe_dashboard][type] is none."
        )
        raise invalid(message, param="controller[requirement_collection]")
    return {
        "fees": {"payer": fees},
        "losses": {"payments": losses},
        "requirement_collection": collection,
        "stripe_dashboard": {"type": dashboard},
    }


def _get(stripe: FakeStripe, account_id: str, *, param: str = "id") -> Object:
    if account_id == PLATFORM or not stripe.store.has_account(account_id):
        raise absent("account", account_id, param=param)
    return stripe.store.get(PLATFORM, "account", account_id, param=param)


def _require(found: Object, due: tuple[str, ...]) -> None:
    wanted = requirements() | {name: list(due) for name in ("currently_due", "eventually_due", "past_due")}
    found["requirements"] = wanted | {"disabled_reason": "requirements.past_due"}


def _fill(found: Object, params: Object) -> None:
    for name, wanted in (params.get("capabilities") or {}).items():
        is_wanted = str(wanted.get("requested", "false")).lower() == "true"
        if is_wanted:
            found["capabilities"].setdefault(name, "active" if found["details_submitted"] else "inactive")
        else:
            found["capabilities"].pop(name, None)
    for name in ("email", "business_type", "default_currency"):
        if name in params:
            found[name] = params[name] or None
    found["business_profile"] |= params.get("business_profile") or {}
    payouts = (params.get("settings") or {}).get("payouts") or {}
    schedule = payouts.get("schedule") or {}
    if "interval" in schedule:
        found["settings"]["payouts"]["schedule"] = {"delay_days": 2, **schedule}
    merge_metadata(found, params)

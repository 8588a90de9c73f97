"""The objects of Stripe's API with every key they have, as of the pinned version; each maker sets what its verb knows.

The keys are checked against Stripe's own fixtures and against the types of stripe-python in tests/contracts/stripe.
"""

from __future__ import annotations

from typing import Any, Final

API_VERSION: Final = "2026-10-28.endive"

Object = dict[str, Any]

ADDRESS: Final = ("city", "country", "line1", "line2", "postal_code", "state")


def nulls(*names: str) -> Object:
    return dict.fromkeys(names)


def listing(url: str, data: list[Object] | None = None, *, has_more: bool = False) -> Object:
    return {"object": "list", "data": data or [], "has_more": has_more, "url": url}


def billing_details() -> Object:
    return {"address": nulls(*ADDRESS), **nulls("email", "name", "phone", "tax_id")}


def customer() -> Object:
    return {
        "object": "customer",
        "address": None,
        "balance": 0,
        "delinquent": False,
        "invoice_settings": nulls("custom_fields", "default_payment_method", "footer", "rendering_options"),
        "metadata": {},
        "next_invoice_sequence": 1,
        "preferred_locales": [],
        "tax_exempt": "none",
        **nulls("currency", "default_source", "description", "discount", "email", "invoice_prefix", "name", "phone"),
        **nulls("shipping", "test_clock"),
    }


def payment_method() -> Object:
    return {
        "object": "payment_method",
        "allow_redisplay": "unspecified",
        "billing_details": billing_details(),
        "metadata": {},
        "type": "card",
        **nulls("customer", "customer_account"),
    }


def card(*, brand: str, last4: str, country: str = "US") -> Object:
    return {
        "brand": brand,
        "checks": nulls("address_line1_check", "address_postal_code_check", "cvc_check"),
        "country": country,
        "display_brand": brand,
        "exp_month": 8,
        "exp_year": 2031,
        "fingerprint": f"fake{last4}",
        "funding": "credit",
        "generated_from": None,
        "last4": last4,
        "networks": {"available": [brand], "preferred": None},
        "regulated_status": "unregulated",
        "three_d_secure_usage": {"supported": True},
        "wallet": None,
    }


def setup_intent() -> Object:
    return {
        "object": "setup_intent",
        "flow_directions": None,
        "metadata": {},
        "payment_method_options": {},
        "payment_method_types": ["card"],
        "status": "requires_payment_method",
        "usage": "off_session",
        **nulls("application", "automatic_payment_methods", "cancellation_reason", "client_secret", "customer"),
        **nulls("description", "last_setup_error", "latest_attempt", "mandate", "next_action", "on_behalf_of"),
        **nulls("payment_method", "payment_method_configuration_details", "single_use_mandate"),
        **nulls("excluded_payment_method_types"),
    }


def payment_intent() -> Object:
    return {
        "object": "payment_intent",
        "amount_capturable": 0,
        "amount_details": {"tip": {}},
        "amount_received": 0,
        "capture_method": "automatic",
        "confirmation_method": "automatic",
        "metadata": {},
        "payment_method_options": {},
        "payment_method_types": ["card"],
        "status": "requires_payment_method",
        **nulls("application", "application_fee_amount", "automatic_payment_methods", "canceled_at"),
        **nulls("cancellation_reason", "client_secret", "customer", "customer_account", "description"),
        **nulls("excluded_payment_method_types", "last_payment_error", "latest_charge", "managed_payments"),
        **nulls("next_action", "on_behalf_of", "payment_method", "payment_method_configuration_details"),
        **nulls("processing", "receipt_email", "review", "setup_future_usage", "shipping", "source"),
        **nulls("statement_descriptor", "statement_descriptor_suffix", "transfer_data", "transfer_group"),
    }


def charge() -> Object:
    return {
        "object": "charge",
        "amount_captured": 0,
        "amount_refunded": 0,
        "billing_details": billing_details(),
        "captured": False,
        "disputed": False,
        "fraud_details": {},
        "metadata": {},
        "paid": False,
        "refunded": False,
        **nulls("application", "application_fee", "application_fee_amount", "balance_transaction"),
        **nulls("calculated_statement_descriptor", "customer", "description", "failure_balance_transaction"),
        **nulls("failure_code", "failure_message", "on_behalf_of", "outcome", "payment_intent", "payment_method"),
        **nulls("receipt_email", "receipt_number", "receipt_url", "review", "shipping", "source"),
        **nulls("source_transfer", "statement_descriptor", "statement_descriptor_suffix", "transfer_data"),
        **nulls("transfer_group"),
    }


def charge_card(method: Object, amount: int) -> Object:
    """A charge's fields of its card; fewer than the payment method has."""
    kept = (
        "brand",
        "checks",
        "country",
        "exp_month",
        "exp_year",
        "fingerprint",
        "funding",
        "last4",
        "regulated_status",
    )
    return {
        **{name: method["card"][name] for name in kept},
        "amount_authorized": amount,
        "authorization_code": "123456",
        "extended_authorization": {"status": "disabled"},
        "incremental_authorization": {"status": "unavailable"},
        "multicapture": {"status": "unavailable"},
        "network": method["card"]["brand"],
        "network_token": {"used": False},
        "overcapture": {"maximum_amount_capturable": amount, "status": "unavailable"},
        **nulls("installments", "mandate", "network_transaction_id", "three_d_secure", "transaction_link_id", "wallet"),
    }


def checkout_session() -> Object:
    return {
        "object": "checkout.session",
        "automatic_tax": {"enabled": False, **nulls("liability", "provider", "status")},
        "custom_fields": [],
        "custom_text": nulls("after_submit", "shipping_address", "submit", "terms_of_service_acceptance"),
        "metadata": {},
        "payment_method_options": {},
        "payment_method_types": ["card"],
        "payment_status": "unpaid",
        "phone_number_collection": {"enabled": False},
        "shipping_options": [],
        "status": "open",
        **nulls("adaptive_pricing", "after_expiration", "allow_promotion_codes", "amount_subtotal", "amount_total"),
        **nulls("billing_address_collection", "cancel_url", "client_reference_id", "client_secret"),
        **nulls("collected_information", "consent", "consent_collection", "currency", "currency_conversion"),
        **nulls("customer", "customer_account", "customer_creation", "customer_details", "customer_email"),
        **nulls("discounts", "integration_identifier", "invoice", "invoice_creation", "locale", "managed_payments"),
        **nulls("origin_context", "payment_intent", "payment_link", "payment_method_collection"),
        **nulls("payment_method_configuration_details", "permissions", "recovered_from"),
        **nulls("saved_payment_method_options", "setup_intent", "shipping_address_collection", "shipping_cost"),
        **nulls("submit_type", "subscription", "success_url", "total_details", "ui_mode", "url", "wallet_options"),
    }


def balance_transaction() -> Object:
    return {
        "object": "balance_transaction",
        "balance_type": "payments",
        "fee": 0,
        "fee_details": [],
        **nulls("description", "exchange_rate", "source"),
    }


def refund() -> Object:
    return {
        "object": "refund",
        "metadata": {},
        "status": "succeeded",
        **nulls("balance_transaction", "charge", "customer", "customer_account", "payment_intent", "payment_method"),
        **nulls("reason", "receipt_number", "source_transfer_reversal", "transfer_reversal"),
    }


def event() -> Object:
    return {"object": "event", "api_version": API_VERSION, "pending_webhooks": 0}


def webhook_endpoint() -> Object:
    return {
        "object": "webhook_endpoint",
        "enabled_events": ["*"],
        "metadata": {},
        "status": "enabled",
        **nulls("api_version", "application", "description"),
    }


def account() -> Object:
    schedule = {"delay_days": 2, "interval": "daily"}
    return {
        "object": "account",
        "business_profile": {
            **nulls("annual_revenue", "estimated_worker_count", "mcc", "minority_owned_business_designation", "name"),
            **nulls("product_description", "support_address", "support_email", "support_phone", "support_url", "url"),
        },
        "capabilities": {},
        "charges_enabled": False,
        "default_currency": "usd",
        "details_submitted": False,
        "future_requirements": requirements(),
        "metadata": {},
        "payouts_enabled": False,
        "requirements": requirements(),
        "settings": {
            "bacs_debit_payments": nulls("display_name", "service_user_number"),
            "branding": nulls("icon", "logo", "primary_color", "secondary_color"),
            "card_issuing": {"tos_acceptance": nulls("date", "ip")},
            "card_payments": {
                "decline_on": {"avs_failure": False, "cvc_failure": False},
                **nulls("statement_descriptor_prefix", "statement_descriptor_prefix_kana"),
                **nulls("statement_descriptor_prefix_kanji"),
            },
            "dashboard": {"display_name": None, "timezone": "Etc/UTC"},
            "invoices": nulls("default_account_tax_ids", "hosted_payment_method_save"),
            "payments": {
                **nulls("statement_descriptor", "statement_descriptor_kana", "statement_descriptor_kanji"),
                **nulls("statement_descriptor_prefix_kana", "statement_descriptor_prefix_kanji"),
            },
            "payouts": {"debit_negative_balances": False, "schedule": schedule, "statement_descriptor": None},
            "sepa_debit_payments": {},
        },
        "tos_acceptance": nulls("date", "ip", "user_agent"),
        "type": "express",
        **nulls("business_type", "email"),
    }


def requirements() -> Object:
    lists: Object = {name: [] for name in ("currently_due", "errors", "eventually_due", "past_due")}
    return lists | {"alternatives": [], "pending_verification": [], **nulls("current_deadline", "disabled_reason")}


def bank_account() -> Object:
    return {
        "object": "bank_account",
        "account_holder_type": "individual",
        "bank_name": "STRIPE TEST BANK",
        "country": "US",
        "currency": "usd",
        "default_for_currency": True,
        "fingerprint": "fakebank",
        "last4": "6789",
        "metadata": {},
        "routing_number": "110000000",
        "status": "new",
        **nulls("account_holder_name", "account_type", "customer"),
    }


def transfer() -> Object:
    return {
        "object": "transfer",
        "amount_reversed": 0,
        "metadata": {},
        "reversed": False,
        "source_type": "card",
        **nulls("balance_transaction", "description", "destination_payment", "source_transaction", "transfer_group"),
    }


def transfer_reversal() -> Object:
    return {
        "object": "transfer_reversal",
        "metadata": {},
        **nulls("balance_transaction", "destination_payment_refund", "source_refund"),
    }


def payout() -> Object:
    return {
        "object": "payout",
        "automatic": False,
        "metadata": {},
        "method": "standard",
        "reconciliation_status": "not_applicable",
        "source_type": "card",
        "status": "pending",
        "type": "bank_account",
        **nulls("application_fee", "application_fee_amount", "balance_transaction", "description"),
        **nulls("failure_balance_transaction", "failure_code", "failure_message", "original_payout", "payout_method"),
        **nulls("reversed_by", "statement_descriptor", "trace_id"),
    }


def dispute() -> Object:
    return {
        "object": "dispute",
        "balance_transactions": [],
        "enhanced_eligibility_types": [],
        "evidence": {
            **nulls("access_activity_log", "billing_address", "cancellation_policy", "cancellation_policy_disclosure"),
            **nulls("cancellation_rebuttal", "customer_communication", "customer_email_address", "customer_name"),
            **nulls("customer_purchase_ip", "customer_signature", "duplicate_charge_documentation"),
            **nulls("duplicate_charge_explanation", "duplicate_charge_id", "product_description", "receipt"),
            **nulls("refund_policy", "refund_policy_disclosure", "refund_refusal_explanation", "service_date"),
            **nulls("service_documentation", "shipping_address", "shipping_carrier", "shipping_date"),
            **nulls("shipping_documentation", "shipping_tracking_number", "uncategorized_file", "uncategorized_text"),
            "enhanced_evidence": {},
        },
        "metadata": {},
        "payment_intent": None,
    }


def early_fraud_warning() -> Object:
    return {
        "object": "radar.early_fraud_warning",
        "actionable": True,
        "charge": "",
        "fraud_type": "misc",
    }

"""Holds, settlements and deposits are of an asset: their amounts lose the dollar from their names."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

RENAMED = {
    "deposit": ["amount"],
    "hold": ["amount"],
    "settlement": ["held", "charged", "fee", "paid", "refunded"],
    "settlementshare": ["charged", "fee", "paid"],
}
USD = 1


def of_asset(model: str) -> migrations.AddField:
    """Which asset the row's amounts are in; those that are there are in dollars."""
    field = models.ForeignKey(
        db_index=False, default=USD, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
    )
    return migrations.AddField(model, "asset", field, preserve_default=False)


def check(model: str, name: str, condition: Q) -> migrations.AddConstraint:
    """One CHECK, in the new names."""
    return migrations.AddConstraint(model, models.CheckConstraint(condition=condition, name=name))


def not_negative(*names: str) -> Q:
    """None of these columns is below zero."""
    return Q(**{f"{name}__gte": 0 for name in names})


CHECKS = [
    check("deposit", "deposit_amount_positive", Q(amount__gt=0)),
    check("hold", "hold_amount_positive", Q(amount__gt=0)),
    check("settlement", "settlement_amounts_nonnegative", not_negative("charged", "fee", "paid", "refunded")),
    check("settlement", "settlement_splits_the_hold", Q(held=F("charged") + F("refunded"))),
    check("settlement", "settlement_splits_the_charge", Q(charged=F("fee") + F("paid"))),
    check("settlementshare", "share_amounts_nonnegative", not_negative("charged", "fee", "paid")),
    check("settlementshare", "share_splits_its_charge", Q(charged=F("fee") + F("paid"))),
]


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_ledger_rules")]

    operations = [
        *(migrations.RemoveConstraint(each.model_name, each.constraint.name) for each in CHECKS),
        *(
            migrations.RenameField(model, f"{name}_usd_micros", name)
            for model, names in RENAMED.items()
            for name in names
        ),
        *CHECKS,
        *(of_asset(model) for model in ("deposit", "hold", "settlement")),
    ]

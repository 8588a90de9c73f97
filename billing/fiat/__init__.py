"""Money by card: top-ups, saved cards, refunds, chargebacks, and the accounts through which providers are paid."""

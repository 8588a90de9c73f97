"""Keys that a contract believed before we kept them: their events are stored, and are taken in again, in their order."""

from django.db import migrations


def note_keys(apps, schema_editor):
    event, contract, key = (apps.get_model("billing", name) for name in ("ChainEvent", "EscrowContract", "ReceiptKey"))
    contracts = {(one.chain_id, one.address): one for one in contract.objects.all()}
    told = event.objects.filter(
        name__in=["ReceiptKeyRegistered", "ReceiptKeyRevoked"], block__state="final", processed_at__isnull=False
    ).select_related("block")
    for one in told.order_by("block__number", "log_index").iterator(500):
        its = contracts.get((one.block.chain_id, one.contract))
        if its is not None:
            key.objects.update_or_create(
                contract=its,
                provider=one.arguments["provider"],
                receipt_key=one.arguments["receiptKey"],
                defaults={"not_after": int(one.arguments.get("notAfter", 0))},
            )


class Migration(migrations.Migration):
    dependencies = [("billing", "0061_failed_holds_open")]

    operations = [migrations.RunPython(note_keys, migrations.RunPython.noop)]

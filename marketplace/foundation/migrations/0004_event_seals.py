"""A digest beside each event, written by the database, and the chain of seals over them; events that are there get theirs."""

from django.db import migrations, models

import marketplace.foundation.clock

# Columns are named, so that a new one does not make old rows look changed. No setting of a session changes the text.
# Only an insert writes the digests: an event is never changed, and whoever changes one leaves the digest that it had.
# Who acted has a digest of its own, which no seal covers: erasing a person puts another name in the place of theirs, by
# the one function that may, whoever the servers are.
DIGEST = """
CREATE FUNCTION foundation_event_digest(r foundation_event) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.subject_kind, r.subject_id, r.from_state, r.to_state, r.reason,
        r.data, extract(epoch FROM r.created_at))::text, 'UTF8')), 'hex')
$$;
CREATE FUNCTION foundation_actor_digest(_id bigint, _actor text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(_id, _actor)::text, 'UTF8')), 'hex')
$$;
CREATE FUNCTION foundation_forget_actor(_address text, _pseudonym text) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF _address NOT LIKE '%@%' OR _pseudonym !~ '^[0-9a-f]{32}@erased[.]invalid$' THEN
        RAISE EXCEPTION 'only an address is forgotten, and only for the pseudonym of an erased person'
            USING ERRCODE = 'check_violation';
    END IF;
    UPDATE foundation_event e SET actor = _pseudonym, actor_digest = foundation_actor_digest(e.id, _pseudonym)
        WHERE e.actor = _address;
END $$;
CREATE FUNCTION foundation_write_event_digest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.row_digest := foundation_event_digest(NEW);
    NEW.actor_digest := foundation_actor_digest(NEW.id, NEW.actor);
    RETURN NEW;
END $$;
CREATE TRIGGER z_event_digest BEFORE INSERT ON foundation_event
    FOR EACH ROW EXECUTE FUNCTION foundation_write_event_digest();
UPDATE foundation_event r SET row_digest = foundation_event_digest(r),
    actor_digest = foundation_actor_digest(r.id, r.actor);
"""
FORGET = """
DROP TRIGGER z_event_digest ON foundation_event;
DROP FUNCTION foundation_write_event_digest;
DROP FUNCTION foundation_forget_actor;
DROP FUNCTION foundation_actor_digest;
DROP FUNCTION foundation_event_digest;
"""


class Migration(migrations.Migration):
    dependencies = [("foundation", "0003_idempotency_scopes")]

    operations = [
        migrations.AddField(
            model_name="event",
            name="row_digest",
            field=models.CharField(db_default="", default="", editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name="event",
            name="actor_digest",
            field=models.CharField(db_default="", default="", editable=False, max_length=64),
        ),
        migrations.CreateModel(
            name="EventSeal",
            fields=[
                ("last_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("events", models.PositiveIntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("prev_hash", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64, unique=True)),
                ("sealed_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
        ),
        migrations.RunSQL(DIGEST, FORGET),
    ]

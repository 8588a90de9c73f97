"""What the triggers of `marketplace.foundation.state_triggers` call, and the digests of events.

A digest beside each event is written by the database; seals chain them.
"""

from django.db import migrations

REFUSE_MOVE = """
CREATE FUNCTION foundation_refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'a % does not begin as %', TG_ARGV[0], NEW.state
            USING ERRCODE = 'integrity_constraint_violation', HINT = 'See the table of its states.';
    END IF;
    RAISE EXCEPTION 'a % never goes from % to %', TG_ARGV[0], OLD.state, NEW.state
        USING ERRCODE = 'integrity_constraint_violation', HINT = 'See the table of its states.';
END $$;
"""
REFUSE_MOVE_BACK = "DROP FUNCTION foundation_refuse_move();"

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
"""
DIGEST_BACK = """
DROP TRIGGER z_event_digest ON foundation_event;
DROP FUNCTION foundation_write_event_digest;
DROP FUNCTION foundation_forget_actor;
DROP FUNCTION foundation_actor_digest;
DROP FUNCTION foundation_event_digest;
"""


class Migration(migrations.Migration):
    dependencies = [("foundation", "0001_tables")]

    replaces = [
        ("foundation", "0002_state_edges"),
    ]

    operations = [migrations.RunSQL(REFUSE_MOVE, REFUSE_MOVE_BACK), migrations.RunSQL(DIGEST, DIGEST_BACK)]

"""What the triggers of `marketplace.foundation.state_triggers` call when a row leaves its state machine."""

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


class Migration(migrations.Migration):
    dependencies = [("foundation", "0001_initial")]

    operations = [migrations.RunSQL(REFUSE_MOVE, REFUSE_MOVE_BACK)]

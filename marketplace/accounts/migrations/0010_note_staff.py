"""Since when somebody is staff is written by the database: no session of an operator makes it earlier."""

from django.db import migrations

BEFORE = "UPDATE accounts_user SET staff_since = created_at WHERE is_staff"
NOTE = """
CREATE FUNCTION accounts_note_staff() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT NEW.is_staff THEN
        NEW.staff_since := NULL;
    ELSIF TG_OP = 'UPDATE' AND OLD.is_staff THEN
        NEW.staff_since := OLD.staff_since;
    ELSE
        NEW.staff_since := now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER user_notes_staff BEFORE INSERT OR UPDATE ON accounts_user
    FOR EACH ROW EXECUTE FUNCTION accounts_note_staff();
"""
NOTE_BACK = """
DROP TRIGGER user_notes_staff ON accounts_user;
DROP FUNCTION accounts_note_staff();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0009_staff_since")]

    operations = [migrations.RunSQL(BEFORE, migrations.RunSQL.noop), migrations.RunSQL(NOTE, NOTE_BACK)]

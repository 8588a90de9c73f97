"""Since when somebody is staff, and may sign in, is written by the database: no operator's session makes it earlier."""

from django.db import migrations

NOTE = """
CREATE FUNCTION accounts_note_staff() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (NEW.is_staff AND NEW.is_active) THEN
        NEW.staff_since := NULL;
    ELSIF TG_OP = 'UPDATE' AND OLD.is_staff AND OLD.is_active THEN
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
    dependencies = [("accounts", "0001_tables")]

    replaces = [
        ("accounts", "0010_note_staff"),
    ]

    operations = [migrations.RunSQL(NOTE, NOTE_BACK)]

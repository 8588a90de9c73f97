-- An account is of an asset that exists, and an asset stays: what a foreign key would say, without everybody's lock on
-- the one row of the dollar.
CREATE OR REPLACE FUNCTION billing_refuse_unknown_asset() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM billing_asset WHERE id = NEW.asset_id) THEN
        RAISE EXCEPTION 'there is no asset %', NEW.asset_id
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'account_of_an_asset';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER account_of_an_asset BEFORE INSERT ON billing_account
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_unknown_asset();
CREATE OR REPLACE TRIGGER asset_never_deleted BEFORE DELETE ON billing_asset
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE OR REPLACE TRIGGER asset_keeps_its_unit BEFORE UPDATE ON billing_asset FOR EACH ROW
    WHEN (OLD.id IS DISTINCT FROM NEW.id OR OLD.scale IS DISTINCT FROM NEW.scale)
    EXECUTE FUNCTION billing_refuse_change();

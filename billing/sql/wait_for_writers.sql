-- Waits until every transfer that has a number is committed or gone, and lets no other one begin before the caller's
-- transaction ends. It runs as the tables' owner: a role that may not rewrite transfers could not take this lock.
CREATE OR REPLACE FUNCTION billing_wait_for_writers() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
BEGIN
    LOCK TABLE billing_transfer IN SHARE MODE;
END $$;

-- What every session of a migration is set to, whatever its role or database says: no limit on how long a statement may
-- run (an index takes what it takes), 100 ms for a lock that others would queue behind; types and definitions written as
-- they are compared.
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN '100ms' WHEN 'default_transaction_isolation' THEN 'read committed'
    WHEN 'quote_all_identifiers' THEN 'off' ELSE '0' END, false)
FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_session_timeout',
    'idle_in_transaction_session_timeout', 'default_transaction_isolation', 'quote_all_identifiers')

-- Everything that the demo made in a given database.
DROP SCHEMA IF EXISTS relay_demo CASCADE

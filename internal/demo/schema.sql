-- Is there a schema relay_demo, and did a demo make it?
SELECT n.oid IS NOT NULL, coalesce(obj_description(n.oid, 'pg_namespace') LIKE 'made by relay demo%', false)
FROM (VALUES (to_regnamespace('relay_demo'))) v (oid) LEFT JOIN pg_namespace n ON n.oid = v.oid
